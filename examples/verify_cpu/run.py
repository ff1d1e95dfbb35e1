"""From a search to a real engine and back, on one CPU core: vLLM, a small Llama, five candidates.

    python examples/verify_cpu/run.py --out runs/verify_cpu

README.md says what is needed and how long it takes. Each stage leaves its files in the folder and
is not repeated where they are there; remove what is to be done again.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "verification.md"
IMAGE = PAGE.parent / "images/verify_cpu.png"
KEPT, STEPS = HERE / "last_run", HERE.parents[1] / "tests/parity/data/vllm_engine"
ENGINE_ARGS = "--dtype float32"


def main() -> None:
    """Runs all stages."""
    options = _options()
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    python: str = options.vllm_python
    for name in ("space.yaml", "served.yaml"):
        shutil.copyfile(HERE / name, out / name)

    stage("model", out / "tiny-llama/config.json", lambda: model(out, python))
    stage("kernels", out / "tables/tables.yaml", lambda: kernels(out, python))
    stage("cells", out / "cells/done", lambda: own("cells.py", out, python))
    stage("fit", out / "hardware/overheads.yaml", lambda: fit(out))
    stage("search", out / "search/run.json", lambda: search(out))
    verified = out / "search/verification/verification.json"
    stage("verify", verified, lambda: verify(out, python, options))
    stage("open loop", out / "open_loop.json", lambda: own("open_loop.py", out, python))
    stage("tight", out / "tight/done", lambda: own("tight.py", out, python))
    own("gates.py", out)
    if options.record:
        own("keep.py", out, str(KEPT), str(STEPS), str(IMAGE))
        call([sys.executable, str(HERE / "record.py"), str(KEPT), str(PAGE)], out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/verify_cpu"))
    parser.add_argument(
        "--vllm-python", default=sys.executable, help="a Python that has vLLM, PyTorch and dynosim"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--record", action="store_true", help="keep figures and steps, and write the page"
    )
    return parser.parse_args()


def stage(name: str, result: Path, work: Callable[[], None]) -> None:
    """Does a stage unless its result is there."""
    if result.exists():
        print(f"== {name}: there already ({result})", flush=True)
        return
    print(f"== {name}", flush=True)
    work()


def model(out: Path, python: str) -> None:
    """Makes the checkpoint."""
    call([python, str(HERE / "make_model.py"), "tiny-llama"], out)


def kernels(out: Path, python: str) -> None:
    """Measures vLLM's own kernels on this CPU, in the model's shapes."""
    words = ["--engine", "vllm", "--device", "cpu", "--dtype", "float32"]
    words += ["--grid", str(HERE / "kernels.yaml"), "--model", "tiny-llama/config.json"]
    dynosim(["calibrate", "measure", *words, "--out", "tables"], out, python)


def fit(out: Path) -> None:
    """Fits tables and overheads to the steps of the calibration cells."""
    logs = sorted(str(p.relative_to(out)) for p in (out / "cells").glob("*.jsonl.gz"))
    words = ["--deployment", "served.yaml", "--output", "hardware", "--from", *logs]
    dynosim(["calibrate", "steps", *words], out)


def search(out: Path) -> None:
    """Simulates all candidates."""
    dynosim(["search", "--space", "space.yaml", "--output-dir", "search"], out)


def verify(out: Path, python: str, options: argparse.Namespace) -> None:
    """Runs three of the frontier and two dominated ones on the engine, and feeds back."""
    words = ["--top", "3", "--dominated", "2", "--repeats", str(options.repeats), "--resume"]
    words += ["--target", "vllm-in-process", "--vllm-command", python]
    dynosim(["verify", "search", *words, f"--engine-args={ENGINE_ARGS}"], out)


def own(script: str, out: Path, *words: str) -> None:
    """Runs a script of this folder on the outputs."""
    call([sys.executable, str(HERE / script), str(out), *words], out)


def dynosim(words: Sequence[str], cwd: Path, python: str = sys.executable) -> None:
    """Runs a command of dynosim."""
    call([python, "-m", "dynosim", *words], cwd)


def call(argv: Sequence[str], cwd: Path) -> None:
    """Runs a program; the whole ends with it where it fails."""
    done = subprocess.run(argv, cwd=cwd, check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
