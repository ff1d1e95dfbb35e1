"""One prefix id stands for one prefix; sharing by ids is sharing of whole prefixes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.hardware_models.arrays import IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.prefix_chains import (
    cut_rows,
    is_chained,
    offsets_of,
    rechain,
    take_rows,
)

Ragged = list[list[int]]
ROWS = st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=12)


def columns(rows: Ragged) -> tuple[IntArray, IntArray]:
    flat = np.array([i for row in rows for i in row], dtype=np.int64)
    return flat, offsets_of(np.array([len(row) for row in rows], dtype=np.int64))


def ragged(ids: IntArray, offsets: IntArray) -> Ragged:
    return [part.tolist() for part in np.split(ids, offsets[1:-1])]


def agreement(a: list[int], b: list[int]) -> int:
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def chained_by_definition(rows: Ragged) -> bool:
    prefix_of: dict[int, tuple[int, ...]] = {}
    return all(
        prefix_of.setdefault(i, tuple(row[: k + 1])) == tuple(row[: k + 1])
        for row in rows
        for k, i in enumerate(row)
    )


@given(ROWS, st.integers(1, 10**12))
def test_chained_means_that_equal_ids_have_equal_prefixes(rows: Ragged, stretch: int) -> None:
    spread = [[i * stretch for i in row] for row in rows]
    assert is_chained(*columns(spread)) == chained_by_definition(rows)


@given(ROWS)
def test_rechained_rows_agree_exactly_as_far_as_before(rows: Ragged) -> None:
    ids, offsets = columns(rows)
    new = ragged(rechain(ids, offsets), offsets)
    assert is_chained(*columns(new))
    for a, new_a in zip(rows, new, strict=True):
        for b, new_b in zip(rows, new, strict=True):
            assert agreement(a, b) == agreement(new_a, new_b)


@given(ROWS, st.data())
def test_rows_are_cut_and_taken_as_lists_are(rows: Ragged, data: st.DataObject) -> None:
    n = len(rows)
    counts = data.draw(st.lists(st.integers(0, 7), min_size=n, max_size=n))
    cut = cut_rows(*columns(rows), np.array(counts))
    assert ragged(*cut) == [row[:count] for row, count in zip(rows, counts, strict=True)]
    order = data.draw(st.permutations(range(n)))
    taken = take_rows(*columns(rows), np.array(order))
    assert ragged(*taken) == [rows[i] for i in order]


def workload(rows: Ragged, **changes: object) -> Workload:
    ids, offsets = columns(rows)
    n = len(rows)
    parts: dict[str, object] = {
        "name": "by hand",
        "arrival_s": np.arange(n, dtype=np.float64),
        "input_tokens": np.full(n, 40, dtype=np.int64),
        "output_tokens": np.full(n, 2, dtype=np.int64),
        "prefix_ids": ids,
        "prefix_offsets": offsets,
        "prefix_block_tokens": 16,
    }
    return Workload(**parts | changes)  # type: ignore[arg-type]


def test_a_sound_workload_is_described() -> None:
    load = workload([[1, 2], [1, 3], [1, 2]]).check()
    description = load.describe()
    # 40 tokens are three blocks of 16, the last partial: 9 blocks, of which 1, 1 and 2 come again.
    assert description["ideal_prefix_hit_share_blocks"] == pytest.approx(3 / 9)
    assert description["ideal_prefix_hit_share_tokens"] == pytest.approx(48 / 120)
    assert description["num_requests"] == 3
    assert description["duration_s"] == 2.0
    assert description["rate_req_s"] == 1.0
    assert description["interarrival_cv"] == 0.0
    assert description["input_tokens"] == {"mean": 40.0, "p50": 40.0, "p95": 40.0}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"arrival_s": np.array([0.0, 2.0, 1.0])}, "arrival_s must not decrease"),
        ({"arrival_s": np.array([0.0, 2.0, np.nan])}, "arrival_s must be finite"),
        ({"arrival_s": np.array([-1.0, 2.0, 3.0])}, "arrival_s must be finite and >= 0"),
        ({"arrival_s": np.array([0, 1, 2])}, "arrival_s is int64 of shape"),
        ({"input_tokens": np.array([40, 0, 40])}, "input_tokens must be >= 1"),
        ({"input_tokens": np.array([40, 40, 31])}, "request 2 has more prefix blocks"),
        ({"output_tokens": np.array([0, 1, 1])}, "output_tokens must be >= 1"),
        ({"output_tokens": np.array([1, 1])}, "output_tokens is int64 of shape"),
        ({"prefix_offsets": np.array([0, 2, 4, 5])}, "prefix_offsets must rise from 0"),
        ({"prefix_ids": np.array([1, 2, 1, 3, 2, 1])}, "one prefix id stands for two"),
        ({"prefix_block_tokens": 0}, "prefix_block_tokens must be >= 1"),
        ({"max_concurrency": 0}, "max_concurrency must be >= 1"),
    ],
)
def test_a_broken_promise_is_named(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        workload([[1, 2], [1, 3], [1, 2]], **changes).check()


def test_a_workload_without_requests_is_refused() -> None:
    with pytest.raises(UserError, match="no requests"):
        workload([]).check()
