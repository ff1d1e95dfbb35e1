"""``--results`` and ``--write``: measurements made by other tools, elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.search.saved_run import load_run
from dynosim.verification.result_files import trials_of


def bench(run: Path, number: int, slowness: float, **other: Any) -> dict[str, Any]:
    """What ``vllm bench serve --save-result`` would write of a trial so many times slower."""
    trial = load_run(run).result.trials[number]
    metrics = trial.metrics
    latencies = {
        f"{s}_{k}_ms": metrics[f"{s}_{k}_ms"] * slowness
        for s in ("mean", "median", "p99")
        for k in ("ttft", "tpot", "itl", "e2el")
    }
    return {
        "model_id": trial.deployment.model,
        "num_prompts": 40,
        "completed": 40,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 20,
        "total_input_tokens": metrics["total_input_tokens"],
        "total_output_tokens": metrics["total_output_tokens"],
        "request_throughput": metrics["request_throughput"] / slowness,
        "output_throughput": metrics["output_throughput"] / slowness,
        **latencies,
        **other,
    }


def write(path: Path, document: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_files_are_told_by_word_or_by_name() -> None:
    assert trials_of(["12=a.json", "out/trial-0003/x.json", "trial_3.json", "12=b=c.json"]) == {
        12: [Path("a.json"), Path("b=c.json")],
        3: [Path("out/trial-0003/x.json"), Path("trial_3.json")],
    }
    with pytest.raises(UserError, match=r"which trial is 'x\.json' of\?"):
        trials_of(["x.json"])


def test_results_of_a_tool_are_the_measurements(
    run: Path, tmp_path: Path, dynosim: Callable[..., Any]
) -> None:
    knee = load_run(run).result.knee
    assert knee is not None
    other = next(
        t for t in load_run(run).result.frontier if t is not knee and t.number != knee.number
    )
    words = []
    for number in (knee.number, other.number):
        for repeat, factor in enumerate((1.2, 1.25, 1.3)):
            file = tmp_path / f"trial-{number:04d}" / f"{repeat}.json"
            words.append(write(file, bench(run, number, factor)))
    answer = dynosim("verify", run, "--results", *words, "--jobs", "1", "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert [p["trial"] for p in found["picks"]] == [knee.number, other.number]
    for pick in found["picks"]:
        rows = {row["metric"]: row for row in pick["metrics"]}
        assert pick["repeats"] == 3
        assert rows["mean_ttft_ms"]["error"] == pytest.approx(1 / 1.25 - 1, abs=1e-4)
        assert rows["output_tok_s_per_gpu"]["error"] == pytest.approx(0.25, abs=1e-4)
        assert rows["output_tok_s_per_user"]["error"] == pytest.approx(0.25, abs=1e-4)
        assert rows["mean_ttft_ms"]["repeat_spread"] == pytest.approx(0.1 / 1.25, abs=1e-4)
    assert found["verdict"]["word"] == "confirmed"


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({"total_input_tokens": 40 * 400}, "prompts (ISL) of 400 tokens"),
        ({"max_concurrency": 8}, "8 requests in flight, planned: 20"),
    ],
)
def test_another_load_is_refused(
    other: dict[str, Any], problem: str, run: Path, tmp_path: Path, dynosim: Callable[..., Any]
) -> None:
    file = write(tmp_path / "a.json", bench(run, 3, 1.0, **other))
    answer = dynosim("verify", run, "--results", f"3={file}")
    assert answer.code == 2
    assert problem in " ".join(answer.err.split())


def test_another_model_is_noted(run: Path, tmp_path: Path, dynosim: Callable[..., Any]) -> None:
    file = write(tmp_path / "a.json", bench(run, 3, 1.0, model_id="Qwen/Qwen3-4B"))
    words = ("--results", f"3={file}", "--rescore", "none")
    answer = dynosim("verify", run, *words)
    assert answer.code == 0, answer.err
    assert "is of the model Qwen/Qwen3-4B, the trial of Qwen/Qwen3-8B" in answer.out


def test_files_to_measure_with_elsewhere(
    run: Path, tmp_path: Path, dynosim: Callable[..., Any]
) -> None:
    folder = tmp_path / "elsewhere"
    answer = dynosim("verify", run, "--top", "2", "--write", folder)
    assert answer.code == 0, answer.err
    plan = json.loads((folder / "plan.json").read_text("utf-8"))
    assert len(plan["picks"]) == 2
    for row in plan["picks"]:
        own = folder / f"trial-{row['trial']:04d}"
        assert sorted(p.name for p in own.iterdir()) == row["files"]
        assert {"serve.sh", "vllm-bench.sh", "aiperf.sh"} <= set(row["files"])
        assert "vllm serve" in (own / "serve.sh").read_text("utf-8")
        assert os.access(own / "serve.sh", os.X_OK)
        assert row["predicted"]["output_tok_s_per_gpu"] > 0
    assert "--results trial-*/*.json" in (folder / "README.md").read_text("utf-8")
    assert not (run / "verification").exists()
