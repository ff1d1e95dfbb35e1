"""The boundary that doubling and bisection find is the boundary there is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dynosim.planning.boundary import PRECISION, find_boundary
from dynosim.planning.load import Load


@given(limit=st.integers(0, 5000), start=st.integers(1, 6000))
def test_concurrency_is_found_to_the_request_or_the_precision(limit: int, start: int) -> None:
    found = find_boundary(lambda load: load.size <= limit, "concurrency", start=start, cap=8192)
    assert found.holds <= limit < found.fails
    assert found.holds == limit or limit <= found.holds * (1 + PRECISION)


@given(limit=st.floats(0.01, 500), start=st.floats(0.01, 500))
def test_rate_is_found_to_the_precision(limit: float, start: float) -> None:
    found = find_boundary(lambda load: load.size <= limit, "rate", start=start, cap=2.0**20)
    assert found.holds <= limit < found.fails <= found.holds * (1 + PRECISION)


def test_a_load_that_never_fails_is_open_at_the_cap() -> None:
    found = find_boundary(lambda load: True, "concurrency", start=1, cap=100)
    assert (found.holds, found.fails) == (100, float("inf"))


def test_a_load_that_always_fails_is_zero() -> None:
    found = find_boundary(lambda load: False, "concurrency", start=16, cap=100)
    assert (found.holds, found.fails) == (0, 1)


def test_no_load_is_asked_for_twice_by_much() -> None:
    seen: list[float] = []

    def meets(load: Load) -> bool:
        seen.append(load.size)
        return load.size <= 300

    find_boundary(meets, "concurrency", start=1, cap=4096)
    assert len(seen) == len(set(seen)) <= 18
