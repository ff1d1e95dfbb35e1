"""The sglang engine forms the batches that SGLang's own scheduler formed, step by step.

``record_sglang.py`` made the recordings; ``docs/sglang-rules.md`` lists what is compared.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from replay import Record, load, our_steps, recorded_steps, recorded_tokens, run_leaping

GROUPS = [
    "fcfs",
    "lpm",
    "dfs_weight",
    "lof",
    "retraction",
    "no_chunks",
    "mixed_chunk",
    "pages",
    "long_queue",
    "long_outputs",
]


def first_difference(record: Record) -> str | None:
    """Returns where the engine first does something else than SGLang did."""
    pairs = itertools.zip_longest(recorded_steps(record), our_steps(record))
    for number, (theirs, ours) in enumerate(pairs):
        if theirs != ours:
            return f"step {number}:\n SGLang {theirs}\n ours {ours}\n {record['options']}"
    return None


@pytest.mark.parametrize("group", GROUPS)
def test_every_step_is_the_one_that_sglang_formed(group: str) -> None:
    for number, record in enumerate(load(group, "sglang")):
        assert first_difference(record) is None, f"workload {number}"


@pytest.mark.parametrize("group", GROUPS)
def test_leaping_gives_every_token_in_the_step_in_which_sglang_gave_it(group: str) -> None:
    for number, record in enumerate(load(group, "sglang")):
        result = run_leaping(record)
        for request, times in enumerate(recorded_tokens(record)):
            ours = result.token_times_s(request)
            assert np.array_equal(ours, times), f"workload {number}, request {request}"
        preempted = [0] * len(result.preemptions)
        for step in recorded_steps(record):
            for request in step.preempted:
                preempted[request] += 1
        assert result.preemptions.tolist() == preempted


def test_the_recordings_are_many_and_bite() -> None:
    records = [record for group in GROUPS for record in load(group, "sglang")]
    rows = [row for record in records for row in record["rows"]]
    assert len(records) >= 600
    assert sum(row[0] for row in rows) > 500_000, "steps"
    assert sum(len(row[3]) for row in rows) > 300, "retractions"
    assert sum(any(row[2][1::2]) for row in rows) > 1_000, "steps in which prefixes were found"


def test_prefix_units_coarser_than_a_page_find_nearly_as_much() -> None:
    # A unit is found whole, where SGLang finds the part that a cut prompt had come to.
    theirs = ours = equal = 0
    records = load("coarse_units", "sglang")
    for record in records:
        equal += first_difference(record) is None
        theirs += sum(sum(step.hits.values()) for step in recorded_steps(record))
        ours += sum(sum(step.hits.values()) for step in our_steps(record))
    assert equal > 0.7 * len(records)
    assert ours == pytest.approx(theirs, rel=0.02)
