"""From measurements to what they say: errors, order, regret, a new frontier, a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dynosim.accuracy.calibrate import Calibrated
from dynosim.accuracy.fit import Tell
from dynosim.hardware_models.errors import UserError
from dynosim.search.evaluator import simulate_candidate
from dynosim.search.outcome import Outcome
from dynosim.search.trial import Trial
from dynosim.verification.comparison import Row, compare
from dynosim.verification.engine_facts import Fact, compare_facts
from dynosim.verification.feedback import fit_overheads
from dynosim.verification.folder import VerificationFolder
from dynosim.verification.measured import Measured
from dynosim.verification.prepared import Prepared
from dynosim.verification.ranking import Ranking, rank, rank_by_preference
from dynosim.verification.regret import Regret, regret_of
from dynosim.verification.rescore import (
    Rescored,
    rescore_by_ratios,
    rescore_by_simulation,
)
from dynosim.verification.verdict import Verdict, verdict_of

Feedback = Literal["ratios", "simulate", "none"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Conclusion:
    """What measurements say of a run. ``rows`` and ``facts`` are pick by pick, as ``measured``.

    ``calibrated`` and ``rescored`` are None where nothing was to be fed back.
    """

    prepared: Prepared
    measured: tuple[Measured, ...]
    rows: tuple[tuple[Row, ...], ...]
    facts: tuple[tuple[Fact, ...], ...]
    rankings: tuple[Ranking, ...]
    regret: Regret | None
    calibrated: Calibrated | None
    rescored: Rescored | None
    verdict: Verdict


def conclude(
    prepared: Prepared,
    measured: Sequence[Measured],
    *,
    feedback: Feedback = "ratios",
    folder: VerificationFolder | None = None,
    jobs: int = 1,
    tell: Tell = lambda line: None,
) -> Conclusion:
    """Returns what the measurements say.

    ``feedback`` is how the frontier is scored anew (:data:`dynosim.verification.rescore.METHODS`);
    ``simulate`` takes the overheads that are fitted, for which it needs the ``folder`` that the
    calibration is written to. ``jobs`` are processes that simulate for the fit. Raises UserError
    for ``simulate`` without a folder, where the calibration cannot be written, and where a
    deployment of ``measured`` does not run any more.
    """
    if feedback == "simulate" and folder is None:
        raise UserError("needs a folder for the fitted overheads", where="feedback: simulate")
    rows = tuple(
        compare(m, prepared.objectives, is_open=prepared.load.is_open) if m else ()
        for m in measured
    )
    regret = regret_of(measured, prepared.preference)
    calibrated = rescored = None
    if feedback != "none" and any(measured):
        tell("fitting overheads to what was measured")
        calibrated = fit_overheads(
            measured, prepared.load, seed=prepared.task.seed, jobs=jobs, tell=tell
        )
        if folder is not None:
            sources = [f"trial {m.pick.number}" for m in measured if m]
            folder.write_calibration(calibrated, sources)
        rescored = _rescored(prepared, measured, feedback, folder)
    return Conclusion(
        prepared=prepared,
        measured=tuple(measured),
        rows=rows,
        facts=tuple(
            compare_facts(m.pick.trial.deployment, prepared.load, m.facts) for m in measured
        ),
        rankings=_rankings(prepared, measured),
        regret=regret,
        calibrated=calibrated,
        rescored=rescored,
        verdict=verdict_of(measured, rows, prepared.preference, regret, rescored),
    )


def _rankings(prepared: Prepared, measured: Sequence[Measured]) -> tuple[Ranking, ...]:
    found = [rank(measured, metric) for metric in prepared.objectives]
    return (*found, rank_by_preference(measured, prepared.preference))


def _rescored(
    prepared: Prepared,
    measured: Sequence[Measured],
    feedback: Feedback,
    folder: VerificationFolder | None,
) -> Rescored:
    if feedback == "ratios" or folder is None:
        return rescore_by_ratios(prepared.result, measured, prepared.preference)
    file = str(folder.calibration)

    def simulate(trial: Trial) -> Outcome:
        return simulate_candidate(replace(trial.deployment, calibration=file), prepared.task)

    return rescore_by_simulation(prepared.result, measured, prepared.preference, simulate)
