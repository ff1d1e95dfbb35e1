"""Errors are shares of the measured value, counted by class."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.accuracy.errors import error_rows, quantity_of, regime_of, residuals


def rows_of(found, *names):
    return error_rows(found, lambda r: tuple(getattr(r, name) for name in names))


def test_statistics_by_hand(outcome):
    # Errors of TPOT: -20 %, 0 %, +10 %, +50 % of 8 ms; absolute 0, 10, 20, 50 %.
    predictions = [6.4, 8.0, 8.8, 12.0]
    found = residuals(outcome(row=f"f:{i}", mean_tpot_ms=ms) for i, ms in enumerate(predictions))
    (row,) = rows_of(found, "quantity")
    assert row.key == ("tpot",)
    assert row.n == 4
    assert row.median_ape == pytest.approx(0.15)
    assert row.p90_ape == pytest.approx(0.2 + 0.7 * 0.3)  # at 2.7 of the ranks 0 to 3
    assert row.bias == pytest.approx(0.05)
    assert row.within == 0.75


def test_a_case_counts_once_for_every_metric_that_is_both_measured_and_predicted(outcome):
    found = residuals([outcome(mean_ttft_ms=30.0, mean_tpot_ms=math.nan, median_itl_ms=7.0)])
    assert [(r.metric, r.error) for r in found] == [("mean_ttft_ms", pytest.approx(0.5))]


def test_what_was_refused_has_no_error(outcome):
    assert residuals([outcome(refusal="no memory")]) == []


def test_classes_are_told_from_the_case_and_the_prediction(outcome):
    (residual,) = residuals([outcome(in_flight=70.0, gpu="h200_sxm", mean_tpot_ms=8.0)])
    assert (residual.gpu, residual.backend, residual.model_class) == ("h200_sxm", "vllm", "dense")
    assert residual.regime == "heavy"
    assert residual.half in ("fit", "held_out")


def test_means_and_medians_of_one_quantity_count_together_and_tails_do_not():
    assert {quantity_of(m) for m in ("mean_ttft_ms", "median_ttft_ms", "p50_ttft_ms")} == {"ttft"}
    assert quantity_of("p99_ttft_ms") == "p99_ttft"
    assert quantity_of("request_throughput") == "request_throughput"


@pytest.mark.parametrize(
    ("in_flight", "regime"), [(1, "light"), (8, "light"), (9, "moderate"), (64.1, "heavy")]
)
def test_load_is_told_by_requests_in_flight(in_flight, regime):
    assert regime_of(in_flight) == regime


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=30))
def test_statistics_keep_their_order_and_every_case(predictions):
    found = [Made(p) for p in predictions]
    (row,) = error_rows(found, lambda r: ("all",))
    assert row.n == len(predictions)
    assert abs(row.bias) <= max(abs(r.error) for r in found)
    assert row.median_ape <= row.p90_ape + 1e-12


class Made:
    """A residual of which only the error is asked."""

    def __init__(self, predicted: float) -> None:
        self.error = predicted / 10.0 - 1.0
