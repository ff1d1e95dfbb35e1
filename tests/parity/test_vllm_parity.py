"""The engine forms the batches that vLLM's own V1 scheduler formed, step by step.

``record_vllm.py`` made the recordings; ``docs/vllm-parity.md`` lists what is compared.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from replay import (
    Record,
    load,
    our_steps,
    recorded_steps,
    recorded_tokens,
    run_leaping,
    with_block_units,
)

GROUPS = [
    "fcfs",
    "priority",
    "long_prefill",
    "long_prefill_priority",
    "watermark",
    "first_chunk_admission",
    "async_fcfs",
    "async_priority",
    "async_long_prefill",
]


def first_difference(record: Record) -> str | None:
    """Returns where the engine first does something else than vLLM did."""
    pairs = itertools.zip_longest(recorded_steps(record), our_steps(record))
    for number, (theirs, ours) in enumerate(pairs):
        if theirs != ours:
            return f"step {number}:\n vLLM {theirs}\n ours {ours}\n {record['options']}"
    return None


@pytest.mark.parametrize("group", GROUPS)
def test_every_step_is_the_one_that_vllm_formed(group: str) -> None:
    for number, record in enumerate(load(group)):
        assert first_difference(record) is None, f"workload {number}"


@pytest.mark.parametrize("group", GROUPS)
def test_leaping_gives_every_token_in_the_step_in_which_vllm_gave_it(group: str) -> None:
    for number, record in enumerate(load(group)):
        result = run_leaping(record)
        for request, times in enumerate(recorded_tokens(record)):
            ours = result.token_times_s(request)
            assert np.array_equal(ours, times), f"workload {number}, request {request}"
        preempted = [0] * len(result.preemptions)
        first_hits: dict[int, int] = {}
        ended: set[int] = set()
        for step in recorded_steps(record):
            # Asynchronously, one may be preempted whose last token has just come.
            for request in set(step.preempted) - ended:
                preempted[request] += 1
            first_hits = step.hits | first_hits
            ended.update(step.finished)
        assert result.preemptions.tolist() == preempted
        assert dict(enumerate(result.cached_tokens.tolist())) == first_hits


def test_the_recordings_are_many_and_bite() -> None:
    records = [record for group in GROUPS for record in load(group)]
    rows = [row for record in records for row in record["rows"]]
    assert len(records) >= 800
    assert sum(row[0] for row in rows) > 200_000, "steps"
    assert sum(len(row[3]) for row in rows) > 1_000, "preemptions"
    assert sum(any(row[2][1::2]) for row in rows) > 1_000, "steps in which prefixes were found"


def test_prefix_units_coarser_than_a_block_are_exact_once_cut_into_blocks() -> None:
    for number, record in enumerate(load("coarse_units")):
        assert first_difference(with_block_units(record)) is None, f"workload {number}"


def test_prefix_units_coarser_than_a_block_find_a_little_less() -> None:
    # A unit is found and evicted whole, where vLLM still finds its first blocks.
    theirs = ours = 0
    for record in load("coarse_units"):
        theirs += sum(sum(step.hits.values()) for step in recorded_steps(record))
        ours += sum(sum(step.hits.values()) for step in our_steps(record))
    assert 0.5 * theirs < ours < theirs
