"""The report: what it holds, that it needs nothing else, and that no name can break out of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from analytic_evaluator import analytic, screen

from dynosim.accuracy.error_classes import FIELDS, ErrorClass
from dynosim.accuracy.intervals import ErrorModel
from dynosim.hardware_models.errors import UserError
from dynosim.search import parse_space, search
from dynosim.search.metric import METRICS
from dynosim.search.outputs import manifest, write_report
from dynosim.search.report.document import MOST_REFUSED, document
from dynosim.search.report.intervals import metric_interval, trial_intervals
from dynosim.search.report.page import page
from dynosim.search.result import SearchResult
from dynosim.search.run_folder import RunFolder
from dynosim.search.saved_run import load_run
from dynosim.search.study import load_workload
from dynosim.search.trial import Trial

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'\u2028<!--"
REPORT_FILES = ("report.html", "frontier.png", "frontier.svg")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def result(small_values: dict[str, Any], folder: Path) -> SearchResult:
    space = parse_space({**small_values, "slos": {"ttft": 400}})
    return search(space, output_dir=folder, workers=1, evaluator=analytic, screen=screen)


def about(result: SearchResult) -> dict[str, Any]:
    return manifest(result, load_workload(result.space))


def embedded(text: str) -> dict[str, Any]:
    """The document as a browser reads it out of the page."""
    found = re.search(r'<script type="application/json" id="document">(.*?)</script>', text, re.S)
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


def assembled(shown: dict[str, Any], number: int) -> str:
    """The YAML that the page puts together for a trial."""
    at = shown["trials"]["number"].index(number)
    lines = [f["lines"][f["codes"][at] if "codes" in f else 0] for f in shown["fields"]]
    return "".join(lines) + str(shown["context"])


def test_every_trial_is_in_it_with_figures_and_reason(result: SearchResult, folder: Path) -> None:
    shown = embedded((folder / "report.html").read_text())
    columns = shown["trials"]
    assert columns["number"] == [t.number for t in result.trials]
    speeds = next(m for m in shown["metrics"] if m["name"] == "output_tok_s_per_user")
    for row, at in enumerate(columns["simulated"]):
        value = result.trials[at].metrics["output_tok_s_per_user"]
        assert speeds["values"][row] == pytest.approx(value, rel=1e-5)
    for trial, reason, detail in zip(
        result.trials, columns["reason"], columns["detail"], strict=True
    ):
        name = None if reason < 0 else shown["reasons"][reason]["name"]
        assert name == trial.reason
        assert shown["details"][detail] == trial.detail
    assert {r["name"]: r["count"] for r in shown["reasons"]} == dict(result.reasons)
    assert shown["frontier"] == [t.number for t in result.frontier]
    assert result.knee is not None
    assert shown["knee"] == result.knee.number
    assert shown["limits"][0]["value"] == 400


def test_its_yaml_is_that_of_the_candidates_files(result: SearchResult, folder: Path) -> None:
    shown = embedded((folder / "report.html").read_text())
    for number, name in shown["files"].items():
        file = yaml.safe_load((folder / name).read_text())
        assert yaml.safe_load(assembled(shown, int(number))) == file
    dominated = next(t for t in result.trials if t.is_feasible and t not in result.frontier)
    again = parse_space(yaml.safe_load(assembled(shown, dominated.number)))
    assert list(again.deployments()) == [dominated.deployment]


def test_it_loads_nothing_and_runs_its_own_script_only(folder: Path, result: SearchResult) -> None:
    text = (folder / "report.html").read_text()
    assert set(re.findall(r"https?://[^\"' ]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"(src|href)=", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]


def hostile(result: SearchResult) -> tuple[SearchResult, dict[str, Any]]:
    """A run in which every text that a user can give is an attack."""
    trials = tuple(
        replace(t, detail=HOSTILE, deployment=replace(t.deployment, model=HOSTILE))
        for t in result.trials
    )
    values = about(result)
    values["workload"]["name"] = HOSTILE
    values["space"]["model"] = HOSTILE
    return replace(result, trials=trials), values


def test_names_cannot_break_out_of_the_page(result: SearchResult) -> None:
    attacked, values = hostile(result)
    text = page(document(attacked, values, context=f"# {HOSTILE}\n"))
    assert "<img" not in text
    assert text.count("<script") == 2
    assert text.count("</script") == 2
    assert embedded(text)["details"] == [HOSTILE]
    assert "&lt;/script&gt;" in text  # The title, which is no script's.


def test_a_report_written_again_has_the_same_bytes(result: SearchResult, folder: Path) -> None:
    before = [(folder / name).read_bytes() for name in REPORT_FILES]
    for name in REPORT_FILES:
        (folder / name).unlink()
    saved = load_run(folder, has_estimates=False)
    with RunFolder(folder, resume=True) as run:
        write_report(run, saved.result, saved.manifest, is_described=saved.is_described)
    assert [(folder / name).read_bytes() for name in REPORT_FILES] == before


def test_the_command_writes_it_again(
    result: SearchResult, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dynosim.cli import run

    before = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    assert run(["report", str(folder), "--quiet"]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    assert (folder / "report.html").read_bytes() == before
    assert run(["report", str(folder / "candidates")]) == 2
    assert "manifest.json does not read" in capsys.readouterr().err


def test_a_run_with_nothing_feasible_and_of_one_objective(small_values: dict[str, Any]) -> None:
    for change in ({"slos": {"ttft": 1}}, {"objectives": ["ttft"]}, {"tensor_parallel_size": 8}):
        space = parse_space({**small_values, **change})
        found = search(space, workers=1, evaluator=analytic, screen=screen)
        shown = embedded(page(document(found, about(found))))
        assert {m["name"] for m in shown["metrics"]} >= set(shown["axes"])


def test_fields_that_a_condition_switches_off_and_two_pools_are_in_it(
    small_values: dict[str, Any], folder: Path
) -> None:
    pools = {
        "prefill_replicas": [0, 2],
        "prefill_tensor_parallel_size": [1, 2],
        "when": {"prefill_tensor_parallel_size": "prefill_replicas > 0"},
    }
    space = parse_space({**small_values, "replicas": 2, **pools})
    found = search(space, output_dir=folder, workers=1, evaluator=analytic, screen=screen)
    shown = embedded((folder / "report.html").read_text())
    field = next(f for f in shown["fields"] if f["name"] == "prefill_tensor_parallel_size")
    assert field["values"] == ["default", "1", "2"]
    assert field["lines"][0] == ""
    assert "vllm TP2 ×2 + TP1 ×2 on h200_sxm" in shown["trials"]["name"]
    assert len(load_run(folder).result.trials) == len(found.trials)


def copies(result: SearchResult, count: int, change: Callable[[int, Trial], Trial]) -> SearchResult:
    """A run of as many trials, made of those of another."""
    have = result.trials
    trials = (change(i, replace(have[i % len(have)], number=i)) for i in range(count))
    return replace(result, trials=tuple(trials))


def test_two_thousand_trials_with_all_metrics_stay_small(result: SearchResult) -> None:
    def with_all_metrics(i: int, trial: Trial) -> Trial:
        figures = {name: 1234.56789 * (i + k + 1) / 7 for k, name in enumerate(METRICS)}
        return replace(trial, metrics=figures, reason=None, detail=f"found {i}.123 ms of 400 ms")

    large = copies(result, 2000, with_all_metrics)
    assert len(page(document(large, about(result))).encode()) < 1.5e6


def test_of_very_many_refused_trials_some_are_listed_and_all_counted(result: SearchResult) -> None:
    def refused(i: int, trial: Trial) -> Trial:
        return replace(trial, metrics={}, reason="oom", detail="too large")

    large = copies(result, MOST_REFUSED + 50, refused)
    shown = document(large, about(result))
    assert len(shown["trials"]["number"]) == MOST_REFUSED
    assert shown["unlisted"] == 50
    assert shown["reasons"][0]["count"] == MOST_REFUSED + 50


def test_frontier_trials_carry_the_intervals_of_predictions_like_theirs(
    result: SearchResult,
) -> None:
    key = tuple("*" for _ in FIELDS)
    kind = ErrorClass(
        quantity="ttft", key=key, points=90, groups=9, low=-0.5, median=0.0, high=0.25
    )
    model = ErrorModel(classes={("ttft", key): kind}, widen={}, coverage={"ttft": 0.81})
    assert result.knee is not None
    metrics = {**result.knee.metrics, "mean_ttft_ms": 100.0, "request_throughput": 2.0}
    trial = replace(result.knee, timing="measured", metrics={**metrics, "mean_e2el_ms": 4000.0})
    found = trial_intervals(trial, is_open=True, model=model)
    assert found.keys() == {"mean_ttft_ms"}
    assert found["mean_ttft_ms"] == pytest.approx((60.653, 128.403), rel=1e-4)
    assert trial_intervals(replace(trial, timing=""), is_open=True, model=model) == {}


def test_metrics_err_as_what_they_follow_from(result: SearchResult) -> None:
    assert result.knee is not None
    key = tuple("*" for _ in FIELDS)
    classes = {
        (quantity, key): ErrorClass(
            quantity=quantity, key=key, points=90, groups=9, low=low, median=0.0, high=high
        )
        for quantity, low, high in (("tpot", -0.5, 0.25), ("request_throughput", -0.1, 0.2))
    }
    model = ErrorModel(classes=classes, widen={}, coverage={})
    figures = {"mean_tpot_ms": 20.0, "p99_tpot_ms": 40.0, "output_tok_s_per_user": 50.0}
    figures |= {"output_tok_s_per_gpu": 300.0, "request_throughput": 2.0, "mean_e2el_ms": 4e3}
    trial = replace(result.knee, timing="measured", metrics=figures)

    def ends(metric: str, *, is_open: bool = False) -> tuple[float, float] | None:
        return metric_interval(trial, metric, is_open=is_open, model=model)

    assert ends("p99_tpot_ms") == pytest.approx((40 * np.exp(-0.5), 40 * np.exp(0.25)))
    assert ends("output_tok_s_per_user") == pytest.approx((50 * np.exp(-0.25), 50 * np.exp(0.5)))
    assert ends("output_tok_s_per_gpu") == pytest.approx((300 * np.exp(-0.1), 300 * np.exp(0.2)))
    assert ends("output_tok_s_per_gpu", is_open=True) is None
    assert ends("num_gpus") is None


def test_a_frontier_is_drawn_on_any_two_metrics(result: SearchResult) -> None:
    figure = result.plot(("p99_ttft_ms", "output_tok_s_per_gpu"), has_intervals=True)
    (axes,) = figure.axes
    assert "TTFT" in axes.get_xlabel()
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert f"on the frontier ({len(result.frontier)})" in texts
    with pytest.raises(UserError, match="nearest: p99_ttft_ms"):
        result.plot(("p99_ttf_ms", "output_tok_s_per_gpu"))
