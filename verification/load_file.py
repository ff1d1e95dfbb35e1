"""A workload as a Mooncake trace: what load tools replay where no option describes it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.sim.workload.traces.mooncake import BLOCK_TOKENS


def block_tokens_of(load: Workload) -> int:
    """Returns how many tokens one id of the trace stands for."""
    return load.prefix_block_tokens or BLOCK_TOKENS


def trace_text(load: Workload) -> str:
    """Returns the rows: arrivals in whole ms, lengths, and an id for every block of a prompt.

    Blocks that requests share have one id, all others one of their own. UserError for turns, which
    come at no time of their own.
    """
    if load.turns is not None:
        raise UserError("turns that wait for answers have no times", where="workload")
    return "".join(json.dumps(row) + "\n" for row in _rows(load))


def _rows(load: Workload) -> Iterator[dict[str, object]]:
    block = block_tokens_of(load)
    known, dense = np.unique(load.prefix_ids, return_inverse=True)
    shared: list[int] = dense.reshape(-1).tolist()
    bounds: list[int] = load.prefix_offsets.tolist()
    next_id = len(known)
    columns = (load.arrival_s, load.input_tokens, load.output_tokens)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for i, (arrival_s, prompt, answer) in enumerate(rows):
        ids = shared[bounds[i] : bounds[i + 1]]
        own = -(-prompt // block) - len(ids)
        yield {
            "timestamp": round(arrival_s * 1e3),
            "input_length": prompt,
            "output_length": answer,
            "hash_ids": [*ids, *range(next_id, next_id + own)],
        }
        next_id += own


def spec_of(load: Workload, path: str, seed: int) -> WorkloadSpec:
    """Returns the options that replay the trace at ``path``."""
    return WorkloadSpec(
        trace=path,
        trace_format="mooncake",
        trace_block_tokens=block_tokens_of(load),
        max_concurrency=load.max_concurrency,
        seed=seed,
    )
