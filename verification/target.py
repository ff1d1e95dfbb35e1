"""What a verification can measure on. A target is one file in ``verification/targets``.

Each module there has ``make(options: TargetOptions) -> Target``, which starts nothing, and may have
``check(candidate: Candidate) -> None``, which raises UserError for what it cannot run.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Candidate
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.observed import ObservedRun


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """What a user says of a target; each target reads what concerns it.

    ``folder`` takes logs, and is not there before a target needs it. ``url`` is where an engine is
    already up, ``model`` the name it serves under, ``api_key_env`` and ``header_env`` name
    environment variables (a key; headers as ``Name: value`` lines) whose content is never written.
    ``command`` starts the engine's command line or its Python, in words, ``arguments`` are words
    for the engine that are no field of a deployment. ``device`` is ``cpu``, ``cuda`` or ``auto``.
    ``start_timeout_s`` bounds a start, ``run_timeout_s`` one measurement, ``request_timeout_s``
    one request of it.
    """

    folder: Path
    url: str | None = None
    model: str | None = None
    api_key_env: str | None = None
    header_env: str | None = None
    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    device: str = "auto"
    start_timeout_s: float = 1800.0
    run_timeout_s: float = 3600.0
    request_timeout_s: float = 600.0


class EngineFailed(UserError):
    """An engine did not start, or died: what was predicted to run does not run.

    Any other error of a target says nothing of the candidate, only that it was not measured.
    """


class Running(Protocol):
    """An engine that runs one candidate and is ready for load."""

    def measure(self, plan: LoadPlan) -> ObservedRun:
        """Sends a load and returns what was seen.

        Raises UserError where nothing answers, EngineFailed where the engine has died.
        """
        ...


class Target(Protocol):
    """A place where candidates run."""

    def run(self, candidate: Candidate) -> AbstractContextManager[Running]:
        """Starts an engine with a candidate's settings; leaving the context stops exactly it.

        Raises UserError for a candidate that the target cannot run, EngineFailed for one whose
        engine ends before it is ready.
        """
        ...
