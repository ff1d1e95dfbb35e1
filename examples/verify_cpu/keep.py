"""Keeps what OUT found: `keep.py OUT RUN STEPS IMAGE`.

RUN takes the figures and the fitted hardware, which `dynosim search` can use without vLLM. STEPS is
for the parity tests: the steps, limits and loads of the first repeat of every pick, closed loop and
open, and of the tight engines.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from open_loop import open_load
from picks import TOP, observed, prepared_run
from tight import all_tight

from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import cluster_spec, plan_pool
from dynosim.sim.workload.columns import Workload
from dynosim.verification.load.plan import WARM_UP

OPTIONS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "long_prefill_token_threshold",
)
COLUMNS = ("arrival_s", "input_tokens", "output_tokens", "prefix_ids", "prefix_offsets")


VERIFIED = "search/verification"
FIGURES = (
    "gates.json",
    "open_loop.json",
    f"{VERIFIED}/verification.json",
)


def main(out: Path, run: Path, steps: Path, image: Path) -> None:
    """Writes both folders and the picture of predicted and measured points."""
    shutil.copyfile(out / VERIFIED / "overlay.png", image)
    keep_figures(out, run)
    keep_steps(out, steps)


def keep_figures(out: Path, folder: Path) -> None:
    """Copies the figures and the hardware."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in FIGURES:
        shutil.copyfile(out / name, folder / Path(name).name)
    shutil.copytree(out / "hardware", folder / "hardware")


def keep_steps(out: Path, folder: Path) -> None:
    """Writes runs.json and a step log a run."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jsonl.gz"):
        old.unlink()
    prepared = prepared_run(out)
    runs: dict[str, Any] = {}
    for one in observed(out, prepared):
        if one.turn.repeat == 1:
            name = f"closed-{one.turn.pick.number}"
            shutil.copyfile(one.steps, folder / f"{name}.jsonl.gz")
            runs[name] = described(one.turn.pick.trial.deployment, prepared.load)
    load = open_load(prepared)
    for pick in prepared.picks[:TOP]:
        name = f"open-{pick.number}"
        log = out / f"open_loop/trial-{pick.number}/steps-1.jsonl.gz"
        shutil.copyfile(log, folder / f"{name}.jsonl.gz")
        runs[name] = described(pick.trial.deployment, load)
    for tight in all_tight(out):
        shutil.copyfile(tight.log(out), folder / f"{tight.name}.jsonl.gz")
        runs[tight.name] = described(tight.deployment, tight.load)
    rows = [f" {json.dumps(name)}: {json.dumps(run)}" for name, run in runs.items()]
    (folder / "runs.json").write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def described(deployment: Deployment, load: Workload) -> dict[str, Any]:
    """Returns what a simulated twin needs: limits, blocks, and the load's columns."""
    planned, _ = plan_pool(deployment, load)
    spec = cluster_spec(deployment, planned, leap=False)
    options = {name: getattr(spec.limits, name) for name in OPTIONS}
    columns = {name: getattr(load, name).tolist() for name in COLUMNS}
    columns |= {"prefix_block_tokens": load.prefix_block_tokens}
    columns |= {"max_concurrency": load.max_concurrency}
    return {
        "options": options | {"num_blocks": spec.num_blocks},
        "warmup": WARM_UP,
        "load": columns,
    }


if __name__ == "__main__":
    main(*(Path(name).resolve() for name in sys.argv[1:5]))
