"""``--results`` and ``--write``: measurements made by other tools, elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.search.saved_run import load_run
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.sim.workload.summary import ideal_prefix_hits
from dynosim.sim.workload.traces import read_trace
from dynosim.verification.load.limits import Limits
from dynosim.verification.load_file import spec_of, trace_text
from dynosim.verification.result_files import trials_of
from dynosim.verification.targets import url
from servers import Engine, served


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


def test_a_load_that_no_option_describes_is_written_as_a_trace(
    run: Path, tmp_path: Path, dynosim: Callable[..., Any]
) -> None:
    trace = tmp_path / "load.csv"
    rows = "".join(f"2023-11-16 18:00:0{i}.1234567,{300 + i},{20 + i}\r\n" for i in range(6))
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + rows, encoding="utf-8")
    space = tmp_path / "space.yaml"
    space.write_text(
        "model: Qwen/Qwen3-8B\ngpu: h100\nbackend_version: 0.19.0\nmax_num_seqs: [4, 16]\n"
        "workload: {trace: load.csv, rate_scale: 2}\n",
        encoding="utf-8",
    )
    other = tmp_path / "other"
    assert dynosim("search", "--space", space, "-o", other, "--workers", 1, "--quiet").code == 0
    folder = tmp_path / "elsewhere"
    assert dynosim("verify", other, "--top", "1", "--write", folder).code == 0
    written = read_trace(str(folder / "load.jsonl"), "mooncake")
    assert written.input_tokens.tolist() == [300, 301, 302, 303, 304, 305]
    assert written.arrival_s.tolist() == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
    plan = json.loads((folder / "plan.json").read_text("utf-8"))
    (pick,) = plan["picks"]
    assert {"vllm-bench.sh", "aiperf.sh"} <= set(pick["files"])
    assert "workload: trace" in pick["left_out"]["guidellm"]
    script = (folder / f"trial-{pick['trial']:04d}" / "vllm-bench.sh").read_text("utf-8")
    assert "--dataset-path ../load.jsonl" in script


def test_prefixes_are_shared_in_the_written_trace(tmp_path: Path) -> None:
    spec = WorkloadSpec(
        random_input_len=100,
        random_output_len=10,
        random_prefix_len=64,
        num_prefixes=3,
        random_range_ratio=0.4,
        num_prompts=40,
        request_rate=5.0,
    )
    load = build_workload(spec)
    file = tmp_path / "load.jsonl"
    file.write_text(trace_text(load), encoding="utf-8")
    again = build_workload(spec_of(load, str(file), 0))
    assert again.input_tokens.tolist() == load.input_tokens.tolist()
    assert again.output_tokens.tolist() == load.output_tokens.tolist()
    assert again.arrival_s == pytest.approx(load.arrival_s - load.arrival_s[0], abs=1.1e-3)
    hits = [ideal_prefix_hits(w) * w.prefix_block_tokens for w in (load, again)]
    assert hits[0] == hits[1] > 0


def test_measurements_of_one_engine_after_the_other_are_put_together(
    run: Path, dynosim: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(url, "Limits", partial(Limits, max_lag_share=1e3))
    result = load_run(run).result
    assert result.knee is not None
    numbers = [result.knee.number, next(t.number for t in result.frontier if t is not result.knee)]
    load = ("--num-prompts", "6", "--rescore", "none")
    with served(Engine(models=("Qwen/Qwen3-8B",), ttft_s=0.005, tpot_s=0.001)) as address:
        for number in numbers:
            words = ("--url", address, "--trials", number, "--repeats", "2", "--resume")
            assert dynosim("verify", run, *words, *load).code == 0
    files = sorted((run / "verification" / "runs").glob("*.json"))
    assert len(files) == 4
    answer = dynosim("verify", run, "--results", *files, *load, "--json")
    assert answer.code == 0, answer.err
    picks = json.loads(answer.out)["picks"]
    assert sorted(p["trial"] for p in picks) == sorted(numbers)
    assert [p["repeats"] for p in picks] == [2, 2]
    assert len(list((run / "verification" / "runs").glob("*.json"))) == 4
