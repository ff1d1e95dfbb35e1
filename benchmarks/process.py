"""Whole processes, run one after the other and measured by the operating system."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """One process: CPU and wall seconds, peak memory in MiB, and what it printed."""

    cpu_s: float
    wall_s: float
    peak_mib: float
    printed: str


def run(command: list[str], python_path: Path | None = None) -> Cost:
    """Returns what one run of ``command`` cost; raises RuntimeError where it fails.

    ``python_path`` is where Python finds packages first.
    """
    env = os.environ | ({"PYTHONPATH": str(python_path)} if python_path else {})
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
    ) as process:
        assert process.stdout is not None
        printed = process.stdout.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        # Popen would wait for a process that is gone.
        process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise RuntimeError(f"{' '.join(command[:3])} failed: {printed[-500:]}")
    wall_s = time.perf_counter() - start
    cpu_s = usage.ru_utime + usage.ru_stime
    return Cost(cpu_s, wall_s, usage.ru_maxrss / 1024, printed)


def alternate(rounds: int, commands: Mapping[str, Callable[[], Cost]]) -> dict[str, list[Cost]]:
    """Returns each command's costs; they take turns, so that a busy machine slows all.

    A first round that does not count leaves Python's compiled files behind.
    """
    for command in commands.values():
        command()
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            costs[name].append(command())
    return costs
