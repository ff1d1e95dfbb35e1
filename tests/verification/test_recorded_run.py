"""The kept run of `examples/verify_cpu`: the page says what it found, and it still holds."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from dynosim.question import read_question
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload

AS_RECORDED = 0.03
"""Predictions may move by this much before the kept run should be made again."""


@pytest.fixture(scope="module")
def example(checkout: Path) -> Path:
    return checkout / "examples" / "verify_cpu"


def script(example: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, example / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def figures(example: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((example / "last_run" / "gates.json").read_text())
    return found


def test_the_page_has_what_was_found(example: Path, checkout: Path) -> None:
    record = script(example, "record")
    page = (checkout / "docs" / "verification.md").read_text(encoding="utf-8")
    section = record.section(example / "last_run")
    assert f"{record.BEGIN}\n{section}\n{record.END}" in page
    assert (checkout / "docs" / record.IMAGE).is_file()


def test_nothing_was_missed(example: Path) -> None:
    found = figures(example)
    assert {gate["verdict"] for gate in found["gates"]} <= {"passed", "inconclusive"}
    assert found["parity"]["equal"] == found["parity"]["runs"]
    assert found["pairs"]["turned"] == []


def test_predictions_are_still_those_that_were_verified(example: Path, tmp_path: Path) -> None:
    """The closed loop of every pick, on the hardware that was fitted then; without vLLM."""
    shape = script(example, "make_model").SHAPE
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(config | shape))
    found = figures(example)
    for number, settings in found["settings"].items():
        load, deployment = asked(example, tmp_path, settings)
        metrics = simulate(deployment, load).metrics()
        for gate in found["gates"]:
            if gate["load"] == "closed" and gate["trial"] == int(number):
                expected = pytest.approx(gate["predicted"], rel=AS_RECORDED)
                assert metrics[gate["metric"]] == expected, gate


def asked(example: Path, folder: Path, settings: str) -> tuple[Any, Deployment]:
    """Returns load and deployment of one pick, told by ``settings`` as gates.py writes them."""
    space = yaml.safe_load((example / "space.yaml").read_text())
    seqs, tokens, cache, threshold = settings.split(", ")
    hardware = example / "last_run" / "hardware"
    space |= {
        "model": str(folder / "config.json"),
        "gpu": str(hardware / "card.yaml"),
        "calibration": str(hardware / "overheads.yaml"),
        "max_num_seqs": int(seqs),
        "max_num_batched_tokens": int(tokens),
        "enable_prefix_caching": cache == "on",
        "long_prefill_token_threshold": int(threshold),
    }
    for key in ("max_gpus", "n_trials"):
        del space[key]
    (folder / "pick.yaml").write_text(yaml.safe_dump(space))
    question = read_question(str(folder / "pick.yaml"), {})
    workload = replace(question.workload, seed=question.seed)
    return build_workload(workload), question.deployment
