"""Predictions of cases under many sets of overheads, each made once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from dynosim.accuracy.case import Case
from dynosim.accuracy.run import Outcome, Report, run_cases
from dynosim.sim.metrics import Metrics

Figures = Mapping[str, float]

_KEPT = ("request_throughput", "mean_e2el_ms")
"""Metrics that tell a case's load, kept beside those that were measured."""

_SAVED_EVERY = 1000
"""Simulations between two writes: a minute's work is lost at most."""


@dataclass(frozen=True, eq=False)
class Question:
    """A case under overheads in place of the backend's own (none: as its card has them)."""

    case: Case
    figures: Figures

    @property
    def key(self) -> str:
        """Names the question, the same in every process."""
        text = json.dumps([self.case.set, self.case.row, sorted(self.figures.items())])
        return blake2b(text.encode(), digest_size=12).hexdigest()


class Predictions:
    """Asks a pool of processes, and remembers the answers: in ``file`` too, so that a fit that was
    interrupted goes on from there.

    The file knows nothing of the simulator's own version: remove it when that has changed.
    """

    def __init__(self, *, jobs: int = 1, file: Path | None = None) -> None:
        self._jobs = jobs
        self._file = file
        self._answers: dict[str, tuple[Metrics, str, str | None]] = {}
        self.num_simulated = 0
        if file is not None and file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                key, predicted, basis, refusal = json.loads(line)
                self._answers[key] = (predicted, basis, refusal)

    def ask(
        self, questions: Sequence[Question], report: Report = lambda requests: None
    ) -> list[Outcome]:
        """Returns the outcomes, in order."""
        new = {q.key: q for q in questions if q.key not in self._answers}
        keys = list(new)
        for at in range(0, len(keys), _SAVED_EVERY):
            self._simulate([new[key] for key in keys[at : at + _SAVED_EVERY]], report)
        return [self._outcome(q) for q in questions]

    def _simulate(self, questions: Sequence[Question], report: Report) -> None:
        cases = [replace(q.case, overheads={**q.figures, **q.case.overheads}) for q in questions]
        outcomes = run_cases(cases, jobs=self._jobs, report=report)
        self.num_simulated += len(cases)
        for question, outcome in zip(questions, outcomes, strict=True):
            kept = {*_KEPT, *outcome.case.measured}
            predicted = {k: v for k, v in outcome.predicted.items() if k in kept}
            self._answers[question.key] = (predicted, outcome.basis, outcome.refusal)
        self._write([question.key for question in questions])

    def _outcome(self, question: Question) -> Outcome:
        predicted, basis, refusal = self._answers[question.key]
        return Outcome(case=question.case, predicted=predicted, basis=basis, refusal=refusal)

    def _write(self, keys: Sequence[str]) -> None:
        if self._file is None or not keys:
            return
        with self._file.open("a", encoding="utf-8") as lines:
            lines.writelines(json.dumps([key, *self._answers[key]]) + "\n" for key in keys)


def log_error(outcome: Outcome, metric: str) -> float:
    """Returns ln(predicted / measured); NaN where there is no prediction."""
    predicted = outcome.predicted.get(metric, math.nan)
    return math.log(predicted / outcome.case.measured[metric]) if predicted > 0 else math.nan
