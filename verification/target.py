"""What a verification can measure on. A target is one file in ``verification/targets``."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from dynosim.planning.exports.base import Candidate
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.observed import ObservedRun


class Running(Protocol):
    """An engine that runs one candidate and is ready for load."""

    def measure(self, plan: LoadPlan) -> ObservedRun:
        """Sends a load and returns what was seen. Raises UserError where nothing answers."""
        ...


class Target(Protocol):
    """A place where candidates run."""

    def run(self, candidate: Candidate) -> AbstractContextManager[Running]:
        """Starts an engine with a candidate's settings; leaving the context stops exactly it.

        Raises UserError for a candidate that the target cannot run.
        """
        ...
