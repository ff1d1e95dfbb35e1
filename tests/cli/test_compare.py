"""``dynosim compare``: files of dynosim and of other tools, points of a search, and mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LOAD = "--isl 200 --osl 40 --num-prompts 60 --request-rate 10"
ENGINE = "--model Qwen/Qwen3-8B --backend-version 0.19.0"


@pytest.fixture
def results(dynosim: Callable[..., Any], tmp_path: Path) -> Path:
    for gpu in ("h100", "l40s"):
        words = f"simulate {ENGINE} --gpu {gpu} {LOAD} --json {tmp_path / gpu}.json"
        assert dynosim(*words.split()).code == 0
    return tmp_path


def test_the_faster_gpu_wins_in_latency_and_the_cheaper_in_price(
    results: Path, dynosim: Callable[..., Any]
) -> None:
    answer = dynosim("compare", results / "h100.json", results / "l40s.json", "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    rows = {row["metric"]: row for row in found["metrics"]}
    assert rows["mean_tpot_ms"]["best"] == "h100"
    assert rows["usd_per_hour"]["best"] == "l40s"
    first, second = rows["mean_tpot_ms"]["values"]
    assert rows["mean_tpot_ms"]["change"] == [0.0, second / first - 1]
    assert found["differences"] == {"gpu": ["h100", "l40s"]}
    assert found["notes"] == []


def test_the_table_names_what_differs(results: Path, dynosim: Callable[..., Any]) -> None:
    answer = dynosim("compare", results / "h100.json", results / "l40s.json")
    assert "mean TPOT (ms)" in answer.out
    assert "Differs in" in answer.out
    assert "of 18 metrics" in answer.out


def test_other_work_is_pointed_out(results: Path, dynosim: Callable[..., Any]) -> None:
    words = f"simulate {ENGINE} --gpu h100 {LOAD} --osl 80 --json {results / 'long'}.json"
    assert dynosim(*words.replace("--osl 40 ", "").split()).code == 0
    answer = dynosim("compare", results / "h100.json", results / "long.json")
    assert "they did not do the same work" in answer.err


def test_points_of_a_search(dynosim: Callable[..., Any], tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(
        "model: Qwen/Qwen3-8B\ngpu: h100\ntensor_parallel_size: [1, 2]\n"
        "workload: {isl: 200, osl: 40, num_prompts: 40}\n",
        encoding="utf-8",
    )
    run = tmp_path / "run"
    assert dynosim("search", "--space", space, "-o", run, "--workers", "1", "--quiet").code == 0
    answer = dynosim("compare", f"{run}:0", f"{run}:1", "--json")
    found = json.loads(answer.out)
    assert found["results"] == ["run:0", "run:1"]
    assert found["differences"] == {"tensor_parallel_size": ["1", "2"]}
    assert "no trial 9" in dynosim("compare", f"{run}:9", run).err


def test_a_tool_s_own_file_is_read(results: Path, dynosim: Callable[..., Any]) -> None:
    document = json.loads((results / "h100.json").read_text(encoding="utf-8"))
    del document["dynosim"]
    (results / "measured.json").write_text(json.dumps(document), encoding="utf-8")
    answer = dynosim("compare", results / "measured.json", results / "h100.json", "--json")
    assert answer.code == 0, answer.err
    rows = {row["metric"]: row for row in json.loads(answer.out)["metrics"]}
    assert rows["mean_ttft_ms"]["change"] == [0.0, 0.0]
    assert rows["mean_ttft_ms"]["best"] is None


@pytest.mark.parametrize(
    ("runs", "problem"), [(["h100.json"], "two or more"), (["no", "h100.json"], "cannot read")]
)
def test_mistakes(
    runs: list[str], problem: str, results: Path, dynosim: Callable[..., Any]
) -> None:
    answer = dynosim("compare", *runs)
    assert answer.code == 2
    assert problem in answer.err
