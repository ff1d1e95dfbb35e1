"""Outcomes on disk, from one search to the next: nothing that decides an outcome is left out."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import dynosim
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.llm.quality import quality_of
from dynosim.search.canonical import canonical
from dynosim.search.identity import data_sha256, workload_sha256
from dynosim.search.outcome import Evaluator, Outcome, Task
from dynosim.sim.deployment import Deployment
from dynosim.sim.planned_engine import resolve_for


class OutcomeCache:
    """A folder of outcomes of one task, a file each, shared by any number of processes.

    An entry's name is the digest of the deployment's canonical form with all cards that it names,
    the workload, seed and limits, the shipped data, dynosim's version and code and the evaluator.
    Failed candidates are not kept. An entry that does not read is a warning, and is computed again;
    so is a folder that cannot be written, which costs the next search its time only. Raises
    UserError where ``folder`` cannot be made.
    """

    def __init__(self, folder: Path, evaluator: Evaluator, task: Task) -> None:
        self._folder, self._task = folder, task
        self._scope = _digest(_task_key(task), data_sha256(), code_sha256(), _maker(evaluator))
        self._can_write = True
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot be made: {error.strerror}", where=f"cache: {folder}") from None

    def get(self, deployment: Deployment) -> Outcome | None:
        """Returns the outcome of a deployment; None where it is not there, or does not read."""
        path = self._path(deployment)
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            warnings.warn(f"cache entry {path}: {error.strerror}; computed again", stacklevel=2)
            return None
        try:
            return _unpacked(text)
        except (ValueError, TypeError, KeyError):
            warnings.warn(f"cache entry {path} is damaged; computed again", stacklevel=2)
            return None

    def put(self, deployment: Deployment, outcome: Outcome) -> None:
        """Keeps an outcome; a reader sees all of it or nothing."""
        if outcome.reason == "error" or not self._can_write:
            return
        path = self._path(deployment)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        try:
            path.parent.mkdir(exist_ok=True)
            partial.write_bytes(_packed(outcome))
            os.replace(partial, path)
        except OSError as error:
            self._can_write = False
            partial.unlink(missing_ok=True)
            warnings.warn(f"cache {self._folder}: {error.strerror}; no more is kept", stacklevel=2)

    def _path(self, deployment: Deployment) -> Path:
        name = _digest(self._scope, *_deployment_key(deployment, self._task))
        return self._folder / name[:2] / f"{name[2:]}.json"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _task_key(task: Task) -> str:
    limits = sorted(task.goodput_ms.items())
    return f"{workload_sha256(task.workload)} {task.seed} {task.max_refused} {limits}"


def _deployment_key(deployment: Deployment, task: Task) -> Iterator[str]:
    form = canonical(deployment, task.workload)
    yield repr(form)
    try:
        engine, messages = resolve_for(deployment, task.workload)
    except UserError:
        return
    # Cards, calibration, kernel tables and the quality of formats may be files of the user's.
    yield f"{engine!r} {quality_of(engine.model)} {messages}"
    yield f"{deployment.idle_fields}"
    if deployment.prefill_pool is not None:
        yield repr(resolve_for(deployment.prefill_pool, task.workload))
    folder = deployment.kernel_tables
    for file in sorted(p for p in Path(folder).rglob("*") if p.is_file()) if folder else ():
        yield f"{file.relative_to(folder or '')} {hashlib.sha256(file.read_bytes()).hexdigest()}"


def _maker(evaluator: Evaluator) -> str:
    """Returns the evaluator's name and the digest of the file that defines it."""
    file = inspect.getsourcefile(inspect.unwrap(evaluator))
    content = Path(file).read_bytes() if file else b""
    name = getattr(evaluator, "__qualname__", type(evaluator).__qualname__)
    return f"{evaluator.__module__}.{name} {hashlib.sha256(content).hexdigest()}"


@cache
def code_sha256() -> str:
    """Returns the digest of dynosim's version, the code that simulates, and all plug-ins."""
    digest = hashlib.sha256(dynosim.__version__.encode())
    root = Path(dynosim.__file__).parent
    names = [root / "search" / "evaluator.py", root / "search" / "stability.py"]
    for room in ("sim", "hardware_models"):
        names += (p for p in (root / room).rglob("*") if p.suffix in (".py", ".so", ".pyd"))
    for path in sorted(names):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    plugins = entry_points()
    for group in sorted(g for g in plugins.groups if g.startswith("dynosim.")):
        for plugin in sorted(plugins.select(group=group), key=str):
            digest.update(f"{plugin} {plugin.dist and plugin.dist.version}".encode())
    return digest.hexdigest()


def _packed(outcome: Outcome) -> bytes:
    content = json.dumps(asdict(outcome), sort_keys=True)
    return json.dumps({"sha256": _digest(content), "outcome": content}).encode()


def _unpacked(text: bytes) -> Outcome:
    """Returns the outcome; ValueError, TypeError or KeyError where the bytes are no such entry."""
    entry: Mapping[str, Any] = json.loads(text)
    if entry["sha256"] != _digest(entry["outcome"]):
        raise ValueError("checksum")
    outcome = Outcome(**json.loads(entry["outcome"]))
    # JSON has lists only.
    return replace(outcome, warnings=tuple(outcome.warnings))
