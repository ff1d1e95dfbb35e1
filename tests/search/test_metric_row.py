"""A trial's metrics behave as the dictionary that they were."""

from __future__ import annotations

import math
import pickle
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.search.metric_row import MetricRow

METRICS = st.dictionaries(
    st.text("abc", min_size=1, max_size=4), st.floats(allow_nan=False) | st.integers(-999, 999)
)


@given(METRICS)
def test_a_row_is_the_mapping_that_it_was_made_of(metrics: dict[str, float]) -> None:
    row = MetricRow(metrics)
    assert row == metrics
    assert {name: type(value) for name, value in row.items()} == {
        name: type(value) for name, value in metrics.items()
    }
    assert list(row) == list(metrics)
    assert repr(row) == repr(metrics)
    assert pickle.loads(pickle.dumps(row)) == metrics


def test_what_is_not_there_is_missing() -> None:
    row = MetricRow({"completed": 5, "duration": math.nan})
    assert "duration" in row
    assert math.isnan(row["duration"])
    assert row.get("ttft") is None
    with pytest.raises(KeyError):
        row["ttft"]


def test_a_row_takes_a_fraction_of_a_dictionary() -> None:
    metrics = {f"metric {i}": i / 7 for i in range(60)}
    row = MetricRow(metrics)
    own = sys.getsizeof(row) + sys.getsizeof(row._values)
    plain = sys.getsizeof(metrics) + sum(map(sys.getsizeof, metrics.values()))
    assert own < 0.25 * plain
