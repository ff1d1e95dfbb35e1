"""A wheel whose inner loop is compiled gives the same bytes as the plain Python.

Compiling takes some minutes and needs a C compiler, so it is done on request only:

    DYNOSIM_TEST_COMPILED=1 pytest tests/packaging/test_compiled.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    os.environ.get("DYNOSIM_TEST_COMPILED") != "1",
    reason="compiling takes minutes (DYNOSIM_TEST_COMPILED=1 asks for it)",
)

DENSE = "--model meta-llama/Llama-3.1-8B-Instruct --gpu h100_sxm"
EXPERTS = "--model deepseek-ai/DeepSeek-V3 --gpu h200_sxm"
DRAFTS = "--speculative-method eagle3 --num-speculative-tokens 3"
TIGHT = "--kv-cache-memory-bytes 4000000000 --max-model-len 16384"
RUNS = {
    "leaps": f"{DENSE} --request-rate 10",
    "preemptions": f"{DENSE} {TIGHT} --request-rate 60",
    "priorities": f"{DENSE} {TIGHT} --request-rate 60 --scheduling-policy priority",
    "sglang": f"{DENSE} --backend sglang --request-rate 30",
    "trtllm": f"{DENSE} --backend trtllm --request-rate 30",
    "prefixes": f"{DENSE} --replicas 3 --router kv_aware --request-rate 60 --random-prefix-len 512",
    "two pools": f"{DENSE} --prefill-replicas 1 --request-rate 10",
    "closed loop": f"{DENSE} --max-concurrency 32",
    "drafts": f"{DENSE} {DRAFTS} --request-rate 10",
    "stages": f"{DENSE} --pipeline-parallel-size 2 --request-rate 10",
    "tiers": f"{DENSE} {TIGHT} --kv-host-gib 16 --request-rate 20 --random-prefix-len 512",
    "lock step": f"{EXPERTS} --data-parallel-size 8 --enable-expert-parallel --request-rate 20",
}
LOAD = "--isl 600 --random-input-cv 1 --osl 120 --random-output-cv 1 --num-prompts 400 --quiet"


@pytest.fixture(scope="module")
def compiled(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiled wheel's files."""
    out = tmp_path_factory.mktemp("compiled")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(out)]
    asked = os.environ | {"DYNOSIM_COMPILE": "1"}
    done = subprocess.run([*command, str(checkout)], env=asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    assert "none-any" not in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out / "files")
    return out / "files"


def simulated(code: Path, options: str, out: Path) -> tuple[bytes, bytes]:
    """Returns both result files of a simulation by the ``dynosim`` package in a folder."""
    out.mkdir()
    path = os.environ | {"PYTHONPATH": str(code), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "dynosim", "simulate", *options.split(), *LOAD.split()]
    done = subprocess.run(
        [*command, "--json", str(out / "run.json")],
        env=path,
        cwd=out,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return (out / "run.json").read_bytes(), (out / "run.requests.jsonl").read_bytes()


@pytest.mark.parametrize(
    "module",
    ["sim/engine/engine", "sim/engine/schedulers/vllm", "hardware_models/timing/step_timer"],
)
def test_the_inner_loop_is_compiled(compiled: Path, module: str) -> None:
    path = compiled / "dynosim" / module
    assert [p for p in path.parent.glob(f"{path.name}.*") if p.suffix in (".so", ".pyd")]


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS.keys())
def test_compiled_and_plain_runs_are_the_same(
    compiled: Path, checkout: Path, tmp_path: Path, options: str
) -> None:
    plain = simulated(checkout / "src", options, tmp_path / "plain")
    assert simulated(compiled, options, tmp_path / "compiled") == plain
