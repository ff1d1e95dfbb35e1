"""``dynosim calibrate fit``: from result files to a file that ``--calibration`` takes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

SERVED = "model: Qwen/Qwen3-8B\ngpu: h100\nbackend_version: 0.19.0\ncalibration: none\n"
LOAD = "--isl 200 --osl 20 --num-prompts 12"


@pytest.fixture
def results(dynosim: Callable[..., Any], tmp_path: Path) -> list[str]:
    """Result files of runs that were slower than the shipped overheads say."""
    (tmp_path / "served.yaml").write_text(SERVED)
    (tmp_path / "true.yaml").write_text(
        yaml.safe_dump({"rows": [{**ROW, "figures": {"layer_launch_s": 40e-6}}]})
    )
    names = []
    for concurrency in (1, 2, 4, 8):
        names.append(f"c{concurrency}.json")
        words = f"simulate served.yaml {LOAD} --max-concurrency {concurrency} --json {names[-1]}"
        answer = dynosim(*shlex.split(words), "--calibration", "true.yaml")
        assert answer.code == 0, answer.err
    return names


ROW = {
    "backend": "vllm",
    "versions": ["0.19.0", "0.19.0"],
    "gpu_class": "hopper",
    "cases": 1,
    "groups": 1,
    "held_out": {},
}


def test_a_fit_to_own_runs(dynosim: Callable[..., Any], tmp_path: Path, results: list[str]) -> None:
    fit = shlex.split("calibrate fit --deployment served.yaml -o own.yaml --jobs 1 --from")
    answer = dynosim(*fit, *results)
    assert answer.code == 0, answer.err
    assert "vllm 0.19.0 on hopper" in answer.out
    document = yaml.safe_load((tmp_path / "own.yaml").read_text())
    assert document["fitted"]["data"] == results
    assert document["fitted"]["command"].startswith("dynosim calibrate fit --deployment")
    (row,) = document["rows"]
    assert row["held_out"]["tpot"]["after"] < 0.3 * row["held_out"]["tpot"]["before"]

    show = shlex.split(f"simulate served.yaml {LOAD} --max-concurrency 4 --json out.json")
    shown = dynosim(*show, "--calibration", "own.yaml")
    assert "Calibrated     vllm 0.19.0 on hopper GPUs (median error on held-out" in shown.out
    found = json.loads((tmp_path / "out.json").read_text())
    real = json.loads((tmp_path / "c4.json").read_text())
    assert found["mean_tpot_ms"] == pytest.approx(real["mean_tpot_ms"], rel=0.03)
    assert found["dynosim"]["calibration"]["figures"] == row["figures"]


def test_what_is_missing_is_asked_for(dynosim: Callable[..., Any], tmp_path: Path) -> None:
    assert "give result files, or --data" in dynosim("calibrate", "fit").err
    (tmp_path / "r.json").write_text("{}")
    answer = dynosim("calibrate", "fit", "--from", "r.json")
    assert answer.code == 2
    assert "--deployment: what served these runs?" in answer.err


def test_a_version_beyond_those_calibrated_is_said_to_be(
    dynosim: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"rows": [{**ROW, "figures": {}}]}))
    words = f"simulate --model Qwen/Qwen3-8B --gpu h100 {LOAD} --calibration own.yaml"
    assert "0.24.0 is newer than 0.19.0, which was calibrated" in dynosim(*shlex.split(words)).out
    bare = dynosim(*shlex.split(words.replace("own.yaml", "none"))).out
    assert "vllm on hopper GPUs is not calibrated" in bare


def test_replicates_show_the_error_of_the_draw(dynosim: Callable[..., Any], tmp_path: Path) -> None:
    words = "simulate --model Qwen/Qwen3-8B --gpu h100 --isl 200 --osl 20 --num-prompts 12"
    more = "--request-rate 5 --replicates 3 --json out.json"
    answer = dynosim(*shlex.split(f"{words} {more}"))
    assert "Over seeds" in answer.out
    found = json.loads((tmp_path / "out.json").read_text())["dynosim"]["replicates"]
    assert found["seeds"] == 3
    assert found["standard_error"]["mean_ttft_ms"] > 0
    assert "--replicates: found 0" in dynosim(*shlex.split(f"{words} --replicates 0")).err
