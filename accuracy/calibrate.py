"""Calibration from end to end: measured cases in, fitted overheads, their errors and a file out."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import dynosim
from dynosim.accuracy.calibration_class import CalibrationClass, classes_of
from dynosim.accuracy.case import Case
from dynosim.accuracy.errors import Residual, residuals
from dynosim.accuracy.fit import Fitted, Tell, fit
from dynosim.accuracy.halves import half_of
from dynosim.accuracy.kinds import quantity_of
from dynosim.accuracy.parameters import fitted_metrics
from dynosim.accuracy.predictions import Predictions, Question, log_error
from dynosim.accuracy.run import Outcome
from dynosim.hardware_models.calibration.overheads import NONE
from dynosim.hardware_models.errors import UserError

LEAST_GROUPS = 2
"""Groups of a class below which nothing can be held out, and a fit would speak for one model."""

Errors = dict[str, dict[str, float]]
"""By quantity: number of points, and median absolute error before and after, as shares."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassReport:
    """One class's fit, and the outcomes of its other half, which no fit has seen."""

    fitted: Fitted
    judged_before: tuple[Outcome, ...] = ()
    judged_after: tuple[Outcome, ...] = ()

    @property
    def held_out(self) -> Errors:
        """Errors on groups of the fitted half, each under overheads fitted without it."""
        return errors_of(self.fitted.before, self.fitted.held_out)

    @property
    def judged(self) -> Errors:
        """Errors on groups of the other half."""
        return errors_of(self.judged_before, self.judged_after)


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibrated:
    """The fits of all classes; ``skipped`` says why others have none."""

    classes: tuple[ClassReport, ...]
    skipped: tuple[str, ...]

    @cached_property
    def residuals(self) -> tuple[Residual, ...]:
        """Errors of all cases under overheads that had not seen their group."""
        unseen = [o for c in self.classes for o in (*c.fitted.held_out, *c.judged_after)]
        return tuple(residuals(unseen))

    def document(self, about: dict[str, Any]) -> dict[str, Any]:
        """Returns what a calibration file holds; ``about`` says how it came to be."""
        return {"fitted": about, "rows": [_row(c) for c in self.classes]}


def calibrate(
    cases: Iterable[Case],
    predictions: Predictions,
    *,
    size: int | None = None,
    tell: Tell = lambda line: None,
) -> Calibrated:
    """Returns the calibration of every class that measured sets have enough groups of.

    The half of the groups that :func:`~.halves.half_of` calls "fit" is fitted, from the priors of
    the cards; the other half judges. A class has at most ``size`` cases of either.
    """
    # Where a largest rate is searched for, one case is many simulations.
    bare = [
        replace(c, deployment=replace(c.deployment, calibration=NONE))
        for c in cases
        if not c.limits_ms
    ]
    to_fit = classes_of((c for c in bare if half_of(c.group) == "fit"), size)
    judges = classes_of((c for c in bare if half_of(c.group) == "held_out"), size)
    subjects = [s for s in to_fit if len(s.groups) >= LEAST_GROUPS]
    skipped = [f"{s.name}: only {len(s.groups)} group" for s in to_fit if s not in subjects]
    if not subjects:
        raise UserError("too few groups of any class to fit", hint="; ".join(skipped))
    fits = fit(subjects, predictions, tell)
    tell("the half that judges")
    return Calibrated(
        classes=tuple(_judged(fitted, judges, predictions) for fitted in fits),
        skipped=tuple(skipped),
    )


def calibrate_own(
    cases: Sequence[Case], predictions: Predictions, tell: Tell = lambda line: None
) -> Calibrated:
    """Returns the calibration by a user's own runs, from the overheads in use so far.

    All runs are fitted; each file is a group, and held out in its turn. Figures that the fit leaves
    alone stay as they are in use: the new file stands in for the old one as a whole.
    """
    fits = fit(classes_of(cases), predictions, tell, is_own=True)
    whole = [replace(f, figures={**f.subject.in_use, **f.figures}) for f in fits]
    return Calibrated(classes=tuple(ClassReport(fitted=f) for f in whole), skipped=())


def _judged(
    fitted: Fitted, judges: Sequence[CalibrationClass], predictions: Predictions
) -> ClassReport:
    own = fitted.subject
    key = (own.backend, own.gpu_class, own.era)
    cases = [c for j in judges if (j.backend, j.gpu_class, j.era) == key for c in j.cases]
    return ClassReport(
        fitted=fitted,
        judged_before=tuple(predictions.ask([Question(c, {}) for c in cases])),
        judged_after=tuple(predictions.ask([Question(c, fitted.figures) for c in cases])),
    )


def errors_of(before: Sequence[Outcome], after: Sequence[Outcome]) -> Errors:
    """Returns the errors of the metrics that a fit goes by, on cases predicted both times."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for first, last in zip(before, after, strict=True):
        for metric in fitted_metrics(first.case.measured):
            found = (log_error(first, metric), log_error(last, metric))
            if not any(map(math.isnan, found)):
                pairs.setdefault(quantity_of(metric), []).append(found)
    return {quantity: _summary(np.array(pairs[quantity])) for quantity in sorted(pairs)}


def _summary(logs: Any) -> dict[str, float]:
    before, after = np.median(np.abs(np.expm1(logs)), axis=0)
    return {"points": len(logs), "before": round(float(before), 4), "after": round(float(after), 4)}


def _row(report: ClassReport) -> dict[str, Any]:
    fitted = report.fitted
    row = {
        "backend": fitted.subject.backend,
        "versions": list(fitted.subject.versions),
        "gpu_class": fitted.subject.gpu_class,
        "figures": dict(fitted.figures),
        "cases": len(fitted.subject.cases),
        "groups": len(fitted.subject.groups),
        "held_out": report.held_out,
    }
    return row | ({"judged": report.judged} if report.judged else {})


def about_fit(command: Sequence[str], sources: Sequence[str]) -> dict[str, Any]:
    """Returns where a fit comes from: the command, its day, this version and the data's names.

    ``SOURCE_DATE_EPOCH`` gives the day, for equal bytes.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    day = datetime.fromtimestamp(int(epoch), UTC).date() if epoch else date.today()
    return {
        "command": shlex.join(command),
        "date": day.isoformat(),
        "dynosim": dynosim.__version__,
        "data": list(sources),
    }


def write_document(document: dict[str, Any], path: Path) -> None:
    """Writes a calibration file, whole or not at all."""
    import yaml

    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    head = "# Overheads fitted to measured serving runs; written by `dynosim calibrate fit`.\n"
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(head + text, encoding="utf-8")
    unfinished.replace(path)
