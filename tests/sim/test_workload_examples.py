"""The example traces: what the README may say of them, and that their script still makes them."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dynosim.sim.workload.traces import read_trace

NAMES = (
    "agents.jsonl",
    "chat_mooncake.jsonl",
    "azure_like.csv",
    "vidur_like.csv",
    "burstgpt_like.csv",
)


@pytest.fixture(scope="module")
def examples(checkout: Path) -> Path:
    return checkout / "examples" / "traces"


@pytest.fixture(scope="module")
def regenerated(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    runpy.run_path(str(examples / "generate.py"))["generate"](folder)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_the_script_makes_the_committed_file(examples: Path, regenerated: Path, name: str) -> None:
    # Another libm may round a drawn length or stamp the other way: not compared by bytes.
    kept, made = read_trace(examples / name), read_trace(regenerated / name)
    np.testing.assert_allclose(made.arrival_s, kept.arrival_s, atol=0.002)
    np.testing.assert_allclose(made.input_tokens, kept.input_tokens, rtol=0.01, atol=1)
    np.testing.assert_allclose(made.output_tokens, kept.output_tokens, atol=1)
    assert (examples / name).stat().st_size < 200_000


def test_the_chat_example_is_a_chat(examples: Path) -> None:
    found: dict[str, Any] = read_trace(examples / "chat_mooncake.jsonl").describe()
    assert found["num_requests"] == 600
    assert found["rate_req_s"] == pytest.approx(4, rel=0.1)
    assert found["interarrival_cv"] == pytest.approx(1, abs=0.15)
    assert 1500 < found["input_tokens"]["mean"] < 3000
    assert found["output_tokens"]["mean"] == pytest.approx(250, rel=0.1)
    assert 0.5 < found["ideal_prefix_hit_share_blocks"] < 0.8


def test_the_burstgpt_example_has_failures(examples: Path) -> None:
    load = read_trace(examples / "burstgpt_like.csv")
    assert load.notes == (f"dropped {400 - len(load)} failed requests (Response tokens 0)",)
    assert len(load) < 400
