"""Small workloads and plans, written out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.prefix_chains import offsets_of
from dynosim.verification.load_plan import LoadPlan

Chain = tuple[int, ...]


def workload(
    chains: Sequence[Chain],
    own: Sequence[int],
    *,
    block: int = 4,
    answers: Sequence[int] | None = None,
    arrival_s: Sequence[float] | None = None,
    max_concurrency: int | None = None,
) -> Workload:
    """Returns requests with prefix blocks ``chains`` and ``own`` tokens after them."""
    counts = np.array([len(chain) for chain in chains], dtype=np.int64)
    return Workload(
        name="by hand",
        arrival_s=np.array(arrival_s or [0.0] * len(chains)),
        input_tokens=counts * block + np.array(own, dtype=np.int64),
        output_tokens=np.array(answers or [3] * len(chains), dtype=np.int64),
        prefix_ids=np.array([i for chain in chains for i in chain], dtype=np.int64),
        prefix_offsets=offsets_of(counts),
        prefix_block_tokens=block,
        max_concurrency=max_concurrency,
    ).check()


def plan(count: int, tokens: int = 4, *, warmup: int = 0, cap: int | None = 2) -> LoadPlan:
    """Returns a closed loop of ``count`` requests behind the warm-up, or all at once."""
    every = count + warmup
    return LoadPlan(
        prompts=tuple((7, 8, 9, i) for i in range(every)),
        output_tokens=(tokens,) * every,
        send_s=None if cap else (0.0,) * every,
        max_concurrency=cap,
        warmup=warmup,
    )
