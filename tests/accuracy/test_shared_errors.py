"""What deployments of one stack share of their errors, and how metrics err together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dynosim.accuracy.errors import Residual
from dynosim.accuracy.learn_shared_errors import learn_shared_errors, write_shared_errors
from dynosim.accuracy.order_check import check_order
from dynosim.accuracy.shared_errors import SharedErrors, read_shared_errors


def residual(group: int, row: int, quantity: str, log_error: float, log_size: float) -> Residual:
    return Residual(
        set="s",
        group=f"stack {group}",
        half="fit",
        row=f"{group}:{row}",
        gpu="h100_sxm",
        backend="vllm",
        model_class="dense",
        regime="light",
        basis="measured",
        metric=f"mean_{quantity}_ms",
        quantity=quantity,
        measured=float(np.exp(log_size + log_error)),
        predicted=float(np.exp(log_size)),
        load="one load",
    )


def measured(share: float, stacks: int = 30, runs: int = 6, seed: int = 0) -> list[Residual]:
    """Errors of 20 %, of whose variance stacks share a part; E2EL errs as TPOT, TTFT by itself."""
    draw = np.random.default_rng(seed)
    found = []
    for stack in range(stacks):
        common = draw.normal(0.0, 0.2 * share**0.5, 2)
        for run in range(runs):
            tpot, ttft = common + draw.normal(0.0, 0.2 * (1.0 - share) ** 0.5, 2)
            size = draw.normal(0.0, 0.3)
            found += [
                residual(stack, run, "tpot", tpot, size),
                residual(stack, run, "e2el", tpot, size),
                residual(stack, run, "ttft", ttft, size),
            ]
    return found


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_the_shared_part_is_what_runs_of_a_stack_have_in_common(share: float) -> None:
    model = learn_shared_errors(measured(share))
    assert model.share("tpot") == pytest.approx(share, abs=0.2)
    at = {q: i for i, q in enumerate(model.quantities)}
    whole = model.shared + model.own
    assert np.diag(whole) == pytest.approx(1.0)
    assert whole[at["tpot"], at["e2el"]] == pytest.approx(1.0, abs=0.02)
    assert whole[at["tpot"], at["ttft"]] == pytest.approx(0.0, abs=0.3)


def test_scores_have_the_covariance_that_is_said() -> None:
    shared = np.array([[0.6, -0.3], [-0.3, 0.5]])
    own = np.array([[0.4, 0.1], [0.1, 0.5]])
    groups = np.full((2, 2), 9)
    model = SharedErrors(quantities=("tpot", "ttft"), shared=shared, own=own, groups=groups)
    stacks = np.array([0, 0, 1])
    scores = model.scores(stacks, ["tpot", "ttft"], 40_000, np.random.default_rng(1))
    assert scores.shape == (40_000, 3, 2)
    found = np.cov(scores.reshape(40_000, 6).T)
    assert found[:2, :2] == pytest.approx(shared + own, abs=0.03)
    assert found[:2, 2:4] == pytest.approx(shared, abs=0.03), "one stack"
    assert found[:2, 4:] == pytest.approx(np.zeros((2, 2)), abs=0.03), "two stacks"


def test_an_unknown_quantity_is_refused() -> None:
    model = learn_shared_errors(measured(0.5, stacks=12))
    with pytest.raises(KeyError, match="joules"):
        model.scores(np.array([0]), ["joules"], 1, np.random.default_rng(0))


def test_too_few_stacks_tell_nothing() -> None:
    few = [r for r in measured(0.5) if r.quantity == "tpot" or r.group in ("stack 1", "stack 2")]
    model = learn_shared_errors(few)
    assert model.quantities == ("tpot",)


def test_the_model_survives_its_file(tmp_path: Path) -> None:
    model = learn_shared_errors(measured(0.5))
    write_shared_errors(model, tmp_path / "shared.csv")
    again = read_shared_errors(tmp_path / "shared.csv")
    assert again.quantities == model.quantities
    assert again.shared == pytest.approx(model.shared, abs=1e-4)
    assert again.own == pytest.approx(model.own, abs=1e-4)
    assert (again.groups == model.groups).all()


def test_the_shipped_model_is_a_covariance_of_scores() -> None:
    model = read_shared_errors()
    assert {"tpot", "ttft", "output_throughput"} <= set(model.quantities)
    assert np.diag(model.shared + model.own) == pytest.approx(1.0, abs=1e-3)
    for part in (model.shared, model.own):
        assert np.linalg.eigvalsh(part).min() > -0.01
    # Longer steps are fewer tokens a second.
    at = {q: i for i, q in enumerate(model.quantities)}
    assert (model.shared + model.own)[at["tpot"], at["output_throughput"]] < -0.5


def test_no_file_knows_nothing(tmp_path: Path) -> None:
    assert read_shared_errors(tmp_path / "none.csv").quantities == ()


def test_what_is_said_of_the_order_of_pairs_comes_true() -> None:
    bands = check_order([r for r in measured(0.8, stacks=32) if r.quantity == "tpot"])
    assert {b.is_one_stack for b in bands} == {True, False}
    for band in bands:
        # Pairs overlap: 100 of them say as much as some 25 that do not.
        room = 0.05 + 4.0 / band.pairs**0.5
        assert band.found == pytest.approx(band.stated, abs=room if band.pairs < 400 else 0.1), band
