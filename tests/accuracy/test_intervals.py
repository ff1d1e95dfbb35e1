"""Intervals hold what they promise, of groups that they have not seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dynosim.accuracy.error_classes import FIELDS, error_classes, weighted_quantiles
from dynosim.accuracy.errors import Residual
from dynosim.accuracy.intervals import FILE, ErrorModel, read_model
from dynosim.accuracy.learn_intervals import learn, write_model

CLASS = {
    "gpu": "h100_sxm",
    "gpu_class": "hopper",
    "backend": "vllm",
    "model_class": "dense",
    "basis": "measured",
    "regime": "light",
}


def residual(group: str, log_error: float, **other: str) -> Residual:
    said = {k: v for k, v in (CLASS | other).items() if k != "gpu_class"}
    return Residual(
        set="s",
        group=group,
        half="fit",
        row="r",
        metric="mean_tpot_ms",
        quantity="tpot",
        measured=float(np.exp(log_error)),
        predicted=1.0,
        **said,
    )


def groups(number: int, spread: float, seed: int = 0, **other: str) -> list[Residual]:
    """Eight residuals a group: half of their variance between groups, half within."""
    draw = np.random.default_rng(seed)
    shifts = draw.normal(0, spread, number)
    return [
        residual(f"{other} {i}", shift + float(draw.normal(0, spread)), **other)
        for i, shift in enumerate(shifts.tolist())
        for _ in range(8)
    ]


def test_eighty_percent_of_left_out_points_are_inside() -> None:
    model = learn(groups(40, 0.2))
    assert 0.75 <= model.coverage["tpot"] <= 0.85
    interval = model.interval("mean_tpot_ms", 10.0, CLASS)
    assert interval is not None
    # The middle 80 % of N(0, 0.2^2 + 0.2^2) is 1.28 x 0.283 either way.
    assert np.log([interval.low / 10, interval.high / 10]) == pytest.approx([-0.36, 0.36], abs=0.1)
    assert interval.groups == 40


def test_few_groups_need_wider_intervals_than_many() -> None:
    assert learn(groups(4, 0.2)).widen["tpot"] > learn(groups(40, 0.2)).widen["tpot"]


def test_weaker_grounds_never_give_narrower_intervals() -> None:
    model = learn(groups(10, 0.3) + groups(10, 0.02, basis="roofline"))
    measured = model.interval("mean_tpot_ms", 1.0, CLASS)
    inferred = model.interval("mean_tpot_ms", 1.0, CLASS | {"basis": "roofline"})
    assert measured is not None
    assert inferred is not None
    assert inferred.low <= measured.low
    assert inferred.high >= measured.high


def test_the_finest_class_with_enough_groups_is_taken() -> None:
    known = groups(5, 0.1) + groups(2, 0.1, gpu="h200_sxm") + groups(5, 0.1, backend="sglang")
    model = learn(known)

    def like(**other: str) -> str:
        interval = model.interval("mean_tpot_ms", 1.0, CLASS | other)
        assert interval is not None
        return interval.like

    assert like() == "h100_sxm, hopper, vllm, dense, measured, light"
    assert like(gpu="h200_sxm") == "hopper, vllm, dense, measured, light"
    assert like(backend="trtllm") == "measured, light"
    assert like(basis="transferred") == "all that was measured"


def test_nothing_like_it_was_measured() -> None:
    model = learn(groups(5, 0.1))
    assert model.interval("mean_ttft_ms", 1.0, CLASS) is None
    assert model.interval("mean_tpot_ms", float("nan"), CLASS) is None
    assert ErrorModel(classes={}, widen={}, coverage={}).interval("x", 1.0, CLASS) is None


def test_groups_count_alike_however_many_rows_they_have() -> None:
    crowd = [residual("a", 0.5) for _ in range(100)]
    two = [residual("b", -0.5), residual("c", -0.5)]
    found = error_classes([*crowd, *two])["tpot", ("*",) * len(FIELDS)]
    assert found.median == pytest.approx(-0.5, abs=0.01)


def test_weighted_quantiles_of_equal_weights_are_quantiles() -> None:
    values = np.array([3.0, 1.0, 2.0])
    assert weighted_quantiles(values, np.ones(3), (0.5, 0.0, 1.0)) == [2.0, 1.0, 3.0]


def test_a_model_outlives_its_file(tmp_path: Path) -> None:
    model = learn(groups(6, 0.2) + groups(6, 0.1, regime="heavy"))
    write_model(model, tmp_path / "errors.csv")
    again = read_model(tmp_path / "errors.csv")
    assert again.classes.keys() == model.classes.keys()
    assert again.widen["tpot"] == pytest.approx(model.widen["tpot"], rel=1e-3)
    assert again.coverage["tpot"] == pytest.approx(model.coverage["tpot"], rel=1e-3)
    one, other = (m.interval("mean_tpot_ms", 1.0, CLASS) for m in (model, again))
    assert one is not None
    assert other is not None
    assert (other.low, other.high) == pytest.approx((one.low, one.high), rel=1e-3)


def test_without_a_file_there_is_no_interval(tmp_path: Path) -> None:
    assert read_model(tmp_path / "none.csv").classes == {}


@pytest.mark.skipif(not FILE.exists(), reason="no residuals are shipped")
def test_shipped_intervals_hold_four_points_in_five_of_unseen_groups() -> None:
    model = read_model()
    for quantity in ("tpot", "ttft"):
        assert 0.75 <= model.coverage[quantity] <= 0.85, quantity


def test_the_classes_are_rows_of_measured_over_predicted() -> None:
    model = learn(groups(4, 0.1))
    frame = model.to_frame()
    assert len(frame) == len(model.classes)
    finest = frame[frame.gpu == "h100_sxm"].iloc[0]
    assert (finest.backend, finest.quantity, finest.groups, finest.points) == (
        "vllm",
        "tpot",
        4,
        32,
    )
    own = model.classes["tpot", tuple(CLASS.values())]
    bounds = (finest.low, finest["median"], finest.high)
    assert np.log(bounds) == pytest.approx((own.low, own.median, own.high))
