"""Which fitted overheads a deployment gets, and what a file of them must hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dynosim.hardware_models.backends import get_backend
from dynosim.hardware_models.calibration.overheads import (
    calibration_for,
    gpu_class,
    parse_calibration,
    shipped_calibrations,
)
from dynosim.hardware_models.cards import card_keys, read_card
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu, list_gpus
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.hardware_models.timing.step_timer import StepTimer

ROW: dict[str, Any] = {
    "backend": "vllm",
    "versions": ["0.14.0", "0.18.0"],
    "gpu_class": "hopper",
    "figures": {"frontend_s": 0.02},
    "cases": 40,
    "groups": 5,
    "held_out": {},
}
ARGS = EngineArgs(model="Qwen/Qwen3-8B", gpu="h100", backend_version="0.19.0")


def file(folder: Path, *rows: dict[str, Any]) -> str:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump({"rows": list(rows)}))
    return str(path)


def test_every_gpu_has_a_class() -> None:
    classes = {key: gpu_class(get_gpu(key)) for key in list_gpus()}
    assert "other" not in classes.values()
    assert (classes["h200_sxm"], classes["b300_sxm"]) == ("hopper", "blackwell")
    assert (classes["l40s"], classes["a100_sxm"]) == ("pcie", "ampere")


def test_fitted_figures_replace_the_card_s(tmp_path: Path) -> None:
    engine = resolve_engine(replace(ARGS, calibration=file(tmp_path, ROW)))
    card = get_backend("vllm", "0.19.0", engine.gpu)
    assert engine.backend == replace(card, frontend_s=0.02)
    assert engine.calibration is not None
    assert not engine.calibration.covers("0.19.0")
    bare = resolve_engine(replace(ARGS, calibration="none"))
    assert (bare.backend, bare.calibration) == (card, None)


def test_the_nearest_versions_are_taken(tmp_path: Path) -> None:
    old = ROW | {"versions": ["0.10.0", "0.12.0"], "figures": {"frontend_s": 0.05}}
    own = file(tmp_path, old, ROW)

    def frontend_s(version: str) -> float:
        row = calibration_for(get_backend("vllm", version), get_gpu("h100"), own)
        assert row is not None
        return row.figures["frontend_s"]

    assert [frontend_s(v) for v in ("0.9.1", "0.11.0", "0.12.1", "0.17.0", "0.24.0")] == [
        0.05,
        0.05,
        0.05,
        0.02,
        0.02,
    ]


def test_other_backends_and_gpus_keep_their_cards(tmp_path: Path) -> None:
    own = file(tmp_path, ROW)
    assert calibration_for(get_backend("sglang"), get_gpu("h100"), own) is None
    assert calibration_for(get_backend("vllm"), get_gpu("b200"), own) is None


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"figures": {"frontend": 1}}, r"rows\[0\].figures: unknown figure 'frontend'"),
        ({"figures": {"frontend_s": "x"}}, r"rows\[0\].figures.frontend_s: found 'x'"),
        ({"figures": {"frontend_s": -1.0}}, r"rows\[0\].figures.frontend_s: found -1"),
        ({"versions": ["new", "0.18.0"]}, r"rows\[0\].versions"),
        ({"cases": None}, r"rows\[0\].cases"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_where(
    tmp_path: Path, broken: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        resolve_engine(replace(ARGS, calibration=file(tmp_path, ROW | broken)))


def test_a_file_without_rows_is_no_calibration(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("tp: 2\n")
    with pytest.raises(UserError, match=r"calibration: .*`rows` is missing"):
        resolve_engine(replace(ARGS, calibration=str(own)))
    with pytest.raises(UserError, match=r"cannot read"):
        resolve_engine(replace(ARGS, calibration=str(tmp_path / "nowhere.yaml")))


def test_shipped_calibrations_are_whole() -> None:
    for key in card_keys("calibrations"):
        assert parse_calibration(read_card("calibrations", key), key)


def test_overheads_cost_what_they_say() -> None:
    engine = resolve_engine(replace(ARGS, tensor_parallel_size=2, calibration="none"))

    def step_s(**figures: float) -> float:
        backend = engine.backend.with_figures(figures)
        timer = StepTimer.compile(replace(engine, backend=backend))
        return timer.step_s(8, 8, 0.0, 8, 8000)

    plain = step_s()
    assert step_s(step_gap_s=0.001) == pytest.approx(plain + 0.001)
    # Two all-reduces a layer, one behind the embedding and one over the logits.
    skewed = step_s(collective_skew_s=1e-5)
    assert skewed == pytest.approx(plain + 1e-5 * (2 * engine.model.num_layers + 2))
    assert step_s(communication_factor=2.0) > plain
    assert step_s(mixed_step_factor=1.5) == plain, "there is no prefill in it"


def test_a_mixed_step_takes_its_factor() -> None:
    engine = resolve_engine(replace(ARGS, calibration="none"))

    def step_s(factor: float, num_decode: int) -> float:
        backend = engine.backend.with_figures({"mixed_step_factor": factor})
        timer = StepTimer.compile(replace(engine, backend=backend))
        attention_s = timer.prefill_attention_s(1024, 0)
        return timer.step_s(1024 + num_decode, 8, attention_s, num_decode, 1000 * num_decode)

    assert step_s(1.25, 8) == pytest.approx(1.25 * step_s(1.0, 8))
    assert step_s(1.25, 0) == step_s(1.0, 0)


def test_shipped_overheads_tell_what_groups_that_no_fit_saw_were_off_by() -> None:
    rows = shipped_calibrations()
    assert {row.backend for row in rows} == {"vllm", "sglang", "trtllm"}
    errors = [row.judged["tpot"] for row in rows if "tpot" in row.judged]
    assert errors
    assert all({"points", "before", "after"} == error.keys() for error in errors)
    assert parse_calibration({"rows": [ROW]}, "own.yaml")[0].judged == {}
