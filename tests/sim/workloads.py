"""Workloads for engine tests, written as plain lists."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from dynosim.sim.workload.columns import Workload


def workload(
    arrival_s: Sequence[float],
    input_tokens: Sequence[int],
    output_tokens: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None = None,
    block: int = 0,
    max_concurrency: int | None = None,
    priority: Sequence[int] | None = None,
) -> Workload:
    """Returns a workload; ``prefixes`` are chained unit ids of ``block`` tokens each."""
    prefixes = prefixes or [[] for _ in arrival_s]
    return Workload(
        name="test",
        arrival_s=np.asarray(arrival_s, dtype=np.float64),
        input_tokens=np.asarray(input_tokens, dtype=np.int64),
        output_tokens=np.asarray(output_tokens, dtype=np.int64),
        prefix_ids=np.asarray(list(itertools.chain(*prefixes)), dtype=np.int64),
        prefix_offsets=np.cumsum([0, *map(len, prefixes)], dtype=np.int64),
        prefix_block_tokens=block,
        max_concurrency=max_concurrency,
        priority=None if priority is None else np.asarray(priority, dtype=np.int64),
    )


@st.composite
def workloads(draw: st.DrawFn, block: int = 16, longest: int = 400) -> Workload:
    """Draws mixed lengths, bursts, and prefixes shared in a tree of ids."""
    n = draw(st.integers(1, 14))
    gaps = draw(st.lists(st.sampled_from([0.0, 0.0013, 0.0371, 0.417]), min_size=n, max_size=n))
    inputs = draw(st.lists(st.integers(1, longest), min_size=n, max_size=n))
    outputs = draw(st.lists(st.integers(1, 120), min_size=n, max_size=n))
    families = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    forks = draw(st.lists(st.integers(0, 30), min_size=n, max_size=n))
    prefixes = [
        [
            1000 * family + position if position < fork else 10**6 * (i + 1) + position
            for position in range(length // block)
        ]
        for i, (family, fork, length) in enumerate(zip(families, forks, inputs, strict=True))
    ]
    closed = draw(st.one_of(st.none(), st.integers(1, n)))
    arrivals = np.cumsum(gaps) if closed is None else np.zeros(n)
    priority = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    return workload(arrivals.tolist(), inputs, outputs, prefixes, block, closed, priority)
