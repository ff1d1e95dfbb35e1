"""A fit finds the overheads that made the measurements, and keeps none that help nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dynosim.accuracy.calibrate import calibrate_own, write_document
from dynosim.accuracy.calibration_class import classes_of, in_turn
from dynosim.accuracy.case import Case
from dynosim.accuracy.fit import fit
from dynosim.accuracy.parameters import era_of, fitted_metrics, parameters_of
from dynosim.accuracy.predictions import Predictions, Question
from dynosim.accuracy.run import run_case
from dynosim.accuracy.shortened import shortened
from dynosim.hardware_models.backends import get_backend
from dynosim.hardware_models.calibration.overheads import calibration_for
from dynosim.hardware_models.gpus import get_gpu
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec

MEASURED = ("mean_ttft_ms", "mean_tpot_ms")
TRUE = {"layer_launch_s": 30e-6, "frontend_s": 0.04}
MODELS = ("Qwen/Qwen3-8B", "Qwen/Qwen3-14B", "meta-llama/Llama-3.1-8B-Instruct")


def case(model: str, concurrency: int, version: str = "0.19.0") -> Case:
    return Case(
        set="test",
        group=model,
        row=f"{model}:{concurrency}",
        deployment=Deployment(
            model=model, gpu="h100_sxm", backend_version=version, calibration="none"
        ),
        workload=WorkloadSpec(
            random_input_len=200,
            random_output_len=30,
            max_concurrency=concurrency,
            num_prompts=3 * concurrency,
        ),
        measured=dict.fromkeys(MEASURED, 1.0),
    )


def measured_with(found: Case, figures: Mapping[str, float], factor: float = 1.0) -> Case:
    """Returns the case with what a simulation says as if it had been measured."""
    predicted = run_case(found, figures).predicted
    return replace(found, measured={m: predicted[m] * factor for m in MEASURED})


CASES = [case(model, concurrency) for model in MODELS for concurrency in (1, 8)]


def test_true_overheads_are_found_and_held_out_groups_are_predicted() -> None:
    subjects = classes_of(measured_with(c, TRUE) for c in CASES)
    (found,) = fit(subjects, Predictions())
    assert found.figures["frontend_s"] == pytest.approx(0.04, rel=0.1)
    # A gap between layers and one a step are alike in models of alike depth.
    error = {name: [abs(o.error(name)) for o in found.held_out] for name in MEASURED}
    before = [abs(o.error("mean_tpot_ms")) for o in found.before]
    assert max(error["mean_tpot_ms"]) < 0.02 < 0.06 < min(before)
    assert max(error["mean_ttft_ms"]) < 0.10


def test_overheads_that_help_no_held_out_group_are_not_kept() -> None:
    # Every model is off by another factor: nothing can be learnt from one for the next.
    factors = dict(zip(MODELS, (0.5, 1.0, 2.0), strict=True))
    cases = [measured_with(c, {}, factors[c.group]) for c in CASES]
    (found,) = fit(classes_of(cases), Predictions())
    assert found.figures == {}
    assert found.held_out == found.before


def test_a_user_s_calibration_is_a_file_that_deployments_take(tmp_path: Path) -> None:
    cases = [measured_with(c, TRUE) for c in CASES]
    document = calibrate_own(cases, Predictions()).document({"date": "2026-11-30"})
    write_document(document, tmp_path / "own.yaml")
    backend, gpu = get_backend("vllm", "0.20.0"), get_gpu("h200")
    row = calibration_for(backend, gpu, str(tmp_path / "own.yaml"))
    assert row is not None
    assert (row.versions, row.gpu_class, row.groups) == (("0.19.0", "0.19.0"), "hopper", 3)
    assert row.held_out["tpot"]["after"] < row.held_out["tpot"]["before"]
    taken = replace(
        cases[0], deployment=replace(cases[0].deployment, calibration=str(tmp_path / "own.yaml"))
    )
    assert run_case(taken).error("mean_tpot_ms") == pytest.approx(0.0, abs=0.05)


def test_overheads_in_use_that_runs_say_nothing_about_stay(tmp_path: Path) -> None:
    shipped = [replace(c, deployment=replace(c.deployment, calibration=None)) for c in CASES[:2]]
    exact = [replace(c, measured=run_case(c).predicted) for c in shipped]
    in_use = classes_of(exact)[0].in_use
    assert in_use, "nothing is calibrated for this class"
    document = calibrate_own(exact, Predictions()).document({"date": "2026-11-30"})
    write_document(document, tmp_path / "own.yaml")
    assert document["rows"][0]["figures"].keys() >= in_use.keys()
    own = replace(exact[0].deployment, calibration=str(tmp_path / "own.yaml"))
    again = run_case(replace(exact[0], deployment=own))
    assert again.error("mean_tpot_ms") == pytest.approx(0.0, abs=0.01)


def test_predictions_are_made_once_and_taken_up_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "predictions.jsonl"
    questions = [Question(CASES[0], {}), Question(CASES[0], {"frontend_s": 0.1})]
    first = Predictions(file=file)
    answers = first.ask([*questions, questions[0]])
    assert first.num_simulated == 2
    again = Predictions(file=file)
    assert [o.predicted for o in again.ask(questions)] == [o.predicted for o in answers[:2]]
    assert again.num_simulated == 0


def test_classes_are_told_apart_by_backend_era_and_gpu() -> None:
    old = case(MODELS[0], 1, version="0.11.0")
    unknown = replace(CASES[0], deployment=replace(CASES[0].deployment, model="nobody/knows"))
    found = classes_of([*CASES, old, unknown])
    assert [(c.name, len(c.cases)) for c in found] == [
        ("vllm 0.11.0 on hopper", 1),
        ("vllm 0.19.0 on hopper", 6),
    ]
    assert (era_of("vllm", "0.13.0"), era_of("vllm", "0.14.0")) == ("", "0.14.0")


def test_a_sample_takes_from_all_groups_in_turn() -> None:
    crowd = [replace(CASES[0], row=f"row {i}") for i in range(50)]
    groups = [c.group for c in in_turn([*crowd, *CASES[2:]], 4)]
    assert sorted(groups) == sorted([*MODELS, MODELS[0]]) or len(set(groups[:3])) == 3


def test_groups_stay_together_in_folds() -> None:
    (subject,) = classes_of(CASES)
    folds = dict(zip([c.group for c in subject.cases], subject.folds().tolist(), strict=True))
    assert [folds[c.group] for c in subject.cases] == subject.folds().tolist()
    (alone,) = classes_of(CASES[:2])
    assert alone.folds().tolist() == [0, 1], "one group: held out by points"


def test_priors_lie_within_their_bounds_and_name_figures_of_the_backend() -> None:
    for name in ("vllm", "sglang", "trtllm"):
        for parameter in parameters_of(get_backend(name)):
            assert parameter.low <= parameter.prior <= parameter.high
            assert parameter.spread > 0
    assert "eager_layer_s" not in {p.name for p in parameters_of(get_backend("static"))}


def test_of_a_quantity_s_statistics_the_mean_is_fitted() -> None:
    found = fitted_metrics({"median_ttft_ms": 3.0, "mean_ttft_ms": 4.0, "p99_ttft_ms": 9.0})
    assert list(found) == ["mean_ttft_ms"]
    assert fitted_metrics({"mean_ttft_ms": float("nan"), "median_tpot_ms": 5.0}).keys() == {
        "median_tpot_ms"
    }


def test_a_case_cut_short_keeps_its_waves_and_its_first_requests() -> None:
    long = replace(CASES[0].workload, num_prompts=5000, max_concurrency=8)
    assert shortened(replace(CASES[0], workload=long)).workload == replace(long, num_prompts=600)
    wide = replace(long, max_concurrency=500)
    assert shortened(replace(CASES[0], workload=wide)).workload == replace(wide, num_prompts=1500)
    columns = build_workload(replace(long, random_prefix_len=32))
    cut = shortened(replace(CASES[0], workload=columns))
    assert isinstance(cut.workload, Workload)
    assert len(cut.workload.check()) == 600
    assert cut.row.endswith("(shortened)")
    assert shortened(CASES[0]) is CASES[0]
