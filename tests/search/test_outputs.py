"""The files of a run, its table on the terminal, and what a worker process imports."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from analytic_evaluator import analytic, screen
from rich.console import Console

from dynosim.hardware_models.errors import UserError
from dynosim.search import load_space, parse_space, search
from dynosim.search.figure import frontier_figure
from dynosim.search.progress import Bar
from dynosim.search.render import print_result, summary_lines
from dynosim.search.result import SearchResult
from dynosim.search.run_folder import RunFolder
from dynosim.search.table import to_csv


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "run"


@pytest.fixture
def result(small_values: dict[str, Any], folder: Path) -> SearchResult:
    space = parse_space({**small_values, "slos": {"ttft": 400}})
    return search(space, output_dir=folder, workers=1, evaluator=analytic, screen=screen)


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_trials_csv_has_every_candidate_and_frontier_csv_the_frontier(
    result: SearchResult, folder: Path
) -> None:
    trials = rows(folder, "trials.csv")
    assert [int(row["number"]) for row in trials] == list(range(result.space.size))
    on_frontier = [row for row in trials if row["on_frontier"] == "true"]
    written = rows(folder, "frontier.csv")
    assert len(written) == len(result.frontier)
    assert sorted(map(str, written)) == sorted(map(str, on_frontier))
    assert {row["is_feasible"] for row in written} == {"true"}
    oom = next(row for row in trials if row["reason"] == "oom")
    assert oom["output_tok_s_per_gpu"] == ""
    assert oom["detail"] == "needs 90.1 GiB of 79.2 GiB"
    knees = [row for row in trials if "knee" in row["mark"]]
    assert result.knee is not None
    assert [int(row["number"]) for row in knees] == [result.knee.number]


def test_numbers_in_tables_are_exact(result: SearchResult, folder: Path) -> None:
    by_number = {t.number: t for t in result.trials}
    for row in rows(folder, "frontier.csv"):
        trial = by_number[int(row["number"])]
        assert float(row["output_tok_s_per_gpu"]) == trial.metrics["output_tok_s_per_gpu"]


def test_cells_without_a_value_are_empty() -> None:
    text = to_csv(["a", "b", "c", "d"], [{"a": None, "b": float("nan"), "c": True, "d": "x,y"}])
    assert text == b'a,b,c,d\n,,true,"x,y"\n'


def test_every_frontier_candidate_has_a_file_that_runs_again(
    result: SearchResult, folder: Path
) -> None:
    files = sorted((folder / "candidates").iterdir())
    assert [int(f.stem) for f in files] == sorted(t.number for t in result.frontier)
    by_number = {t.number: t.deployment for t in result.trials}
    for file in files:
        again = load_space(file)
        assert list(again.deployments()) == [by_number[int(file.stem)]]
        assert again.workload == result.space.workload
        assert again.slos == result.space.slos


def test_the_manifest_says_what_the_run_was_made_of(result: SearchResult, folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["seed"] == 0
    assert manifest["mode"] == "exhaustive"
    assert manifest["size"] == 144
    assert manifest["space"]["slos"] == {"ttft": {"p99": 400.0}}
    assert manifest["workload"]["num_requests"] == 20
    assert manifest["frontier"] == [t.number for t in result.frontier]
    assert manifest["infeasible"] == dict(result.reasons)
    assert {"dynosim", "numpy", "optuna", "data_sha256"} <= manifest["versions"].keys()
    assert str(folder) not in json.dumps(manifest)
    run = json.loads((folder / "run.json").read_text())
    assert run["workers"] == 1


def test_optuna_reads_the_study_with_the_same_frontier(result: SearchResult, folder: Path) -> None:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    study = optuna.load_study(study_name="dynosim", storage=storage)
    assert len(study.trials) == len(result.trials)
    best = {tuple(t.values) for t in study.best_trials}
    assert best == {t.values(result.space.objectives) for t in result.frontier}
    reasons = [t.user_attrs["reason"] for t in study.trials if t.user_attrs["reason"]]
    assert len(reasons) == sum(result.reasons.values())


def test_parquet_holds_the_same_table(
    small_values: dict[str, Any], tmp_path: Path, result: SearchResult
) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
    search(
        result.space,
        output_dir=tmp_path / "parquet",
        table_format="parquet",
        workers=1,
        evaluator=analytic,
        screen=screen,
    )
    frame = pandas.read_parquet(tmp_path / "parquet" / "trials.parquet")
    assert len(frame) == len(result.trials)
    assert frame["output_tok_s_per_gpu"].max() == max(
        t.metrics.get("output_tok_s_per_gpu", 0.0) for t in result.trials
    )


def test_the_figure_names_axes_units_frontier_and_marks(result: SearchResult) -> None:
    axes = frontier_figure(result).axes[0]
    assert axes.get_xlabel() == "Output speed per user (tok/s/user)"
    assert axes.get_ylabel() == "Output throughput per GPU (tok/s/GPU)"
    legend = axes.get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert any(label.startswith("infeasible (") for label in labels)
    assert any(label.startswith("vllm (") for label in labels)
    assert any(label.startswith("frontier (") for label in labels)
    assert any(label.startswith("knee: ") for label in labels)
    assert any(label.startswith("cheapest within SLO: ") for label in labels)


def test_a_figure_of_nothing_feasible_and_of_one_objective(small_values: dict[str, Any]) -> None:
    for change in ({"slos": {"ttft": 1}}, {"objectives": ["ttft"]}, {"tensor_parallel_size": 8}):
        space = parse_space({**small_values, **change})
        found = search(space, workers=1, evaluator=analytic, screen=screen)
        found.plot().savefig(io.BytesIO())


def printed(result: SearchResult, width: int) -> str:
    stream = io.StringIO()
    print_result(result, Console(file=stream, width=width, color_system=None))
    return stream.getvalue()


def test_the_table_marks_knee_and_cheapest_without_colour(result: SearchResult) -> None:
    text = printed(result, 200)
    assert "◆ knee" in text
    assert "$ cheapest within SLO" in text
    assert "\x1b" not in text
    assert "SLO: p99 TTFT ≤ 400 ms" in text
    assert "36 over_gpu_budget" in text


def test_nothing_feasible_is_said_with_an_example_of_each_reason(
    small_values: dict[str, Any],
) -> None:
    space = parse_space({**small_values, "slos": {"ttft": 1}})
    lines = summary_lines(search(space, workers=1, evaluator=analytic, screen=screen))
    assert "no candidate is feasible: nothing to choose from" in lines
    assert any(line.startswith("  slo, trial ") and "found" in line for line in lines)


def test_the_bar_is_silent_where_stderr_is_no_terminal(small_values: dict[str, Any]) -> None:
    stream = io.StringIO()
    bar = Bar(Console(file=stream))
    search(small_values, workers=1, progress=bar, evaluator=analytic, screen=screen)
    assert stream.getvalue() == ""


def test_the_bar_shows_rate_share_and_hypervolume(small_values: dict[str, Any]) -> None:
    stream = io.StringIO()
    bar = Bar(Console(file=stream, force_terminal=True, width=160))
    search(small_values, workers=1, progress=bar, evaluator=analytic, screen=screen)
    text = stream.getvalue()
    assert "trials/s" in text
    assert "feasible" in text
    assert "hypervolume" in text


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UserError, match="cannot be written"), RunFolder(file / "run"):
        pass


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    def fails(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("no more")

    with RunFolder(tmp_path) as folder:
        folder.write("trials.csv", b"old")
        with pytest.raises(RuntimeError):
            folder.write_with("trials.csv", fails)
    assert (tmp_path / "trials.csv").read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["trials.csv"]


def test_a_worker_imports_numpy_and_simpy_only() -> None:
    heavy = "{'optuna', 'pandas', 'matplotlib', 'pydantic', 'scipy', 'rich', 'pyarrow', 'moocore'}"
    script = (
        "import sys, dynosim.search.worker, dynosim.search.evaluator\n"
        f"found = {heavy} & set(sys.modules)\n"
        "sys.exit(', '.join(found))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True)
    assert done.stderr.decode() in ("", "\n")


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
