"""Compiles the simulator's inner loop into the wheel where the environment says DYNOSIM_COMPILE=1.

The modules stay the Python that they are: mypyc makes an extension module of each, found before
its source, which the wheel has too. Tests run on either.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = {"src/dynosim": "dynosim"} | {
    room: f"dynosim/{room}"
    for room in ("hardware_models", "sim", "accuracy", "search", "planning", "verification")
}
COMPILED = (
    "hardware_models/timing/decode_rows.py",
    "hardware_models/timing/mixed.py",
    "hardware_models/timing/pipeline.py",
    "hardware_models/timing/prefill_curve.py",
    "hardware_models/timing/speculation.py",
    "hardware_models/timing/step_timer.py",
    "sim/cluster/abreast.py",
    "sim/cluster/apart.py",
    "sim/cluster/cache_feed.py",
    "sim/cluster/dispatcher.py",
    "sim/cluster/prompts.py",
    "sim/cluster/replica_load.py",
    "sim/cluster/requests.py",
    "sim/cluster/routers/kv_aware.py",
    "sim/cluster/selection.py",
    "sim/cluster/worker.py",
    "sim/engine/*.py",
    "sim/engine/schedulers/*.py",
    "sim/tiers/tiered_engine.py",
)


class CompileHook(BuildHookInterface[Any]):
    """Adds the extension modules to a wheel."""

    PLUGIN_NAME = "custom"
    _staging: Path | None = None

    @property
    def _is_on(self) -> bool:
        return os.environ.get("DYNOSIM_COMPILE") == "1"

    def dependencies(self) -> list[str]:
        """Returns what compiling needs."""
        return ["mypy>=1.11", "numpy>=1.26", "setuptools"] if self._is_on else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles a copy of the package as it will be installed."""
        if not self._is_on or version == "editable":
            return
        self._staging = staging = Path(tempfile.mkdtemp())
        for source, target in PACKAGES.items():
            # The rooms are links in src/dynosim; each is copied from where it is.
            shutil.copytree(
                Path(self.root, source),
                staging / target,
                ignore=lambda folder, names: [n for n in names if Path(folder, n).is_symlink()],
            )
        package = staging / "dynosim"
        modules = [m for pattern in COMPILED for m in package.glob(pattern) if m.stem != "__init__"]
        subprocess.run(
            [sys.executable, "-m", "mypyc", "--ignore-missing-imports", *map(str, sorted(modules))],
            cwd=staging,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        shutil.rmtree(staging / "build")
        for found in (*staging.rglob("*.so"), *staging.rglob("*.pyd")):
            build_data["force_include"][str(found)] = str(found.relative_to(staging))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes the copy."""
        if self._staging is not None:
            shutil.rmtree(self._staging)
