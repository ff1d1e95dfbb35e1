"""A conclusion as plain values: what ``verification.json`` holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dynosim.verification.choice import Pick
from dynosim.verification.comparison import Row
from dynosim.verification.conclusion import Conclusion
from dynosim.verification.measured import DRIFT, Measured
from dynosim.verification.prepared import Prepared
from dynosim.verification.ranking import Ranking
from dynosim.verification.render import name_of
from dynosim.verification.rescore import METHODS, Rescored

DIGITS = 6
"""Significant digits of a figure: beyond what any measurement repeats."""


def document(conclusion: Conclusion, about: Mapping[str, Any]) -> dict[str, Any]:
    """Returns everything that was found; errors are predicted / measured - 1, as shares.

    ``about`` says of what run and how it was measured.
    """
    prepared, verdict = conclusion.prepared, conclusion.verdict
    regret = conclusion.regret
    return {
        **about,
        "verdict": {
            "word": verdict.word,
            "reasons": list(verdict.reasons),
            "recommended": prepared.preference.recommended.number,
            "winner": verdict.winner,
        },
        "preference": {
            "as": prepared.preference.name,
            "weights": {m: short(w) for m, w in prepared.preference.weights.items()},
        },
        "drift_limit": DRIFT,
        "picks": [_pick(conclusion, i) for i in range(len(conclusion.measured))],
        "order": [_order(ranking) for ranking in conclusion.rankings],
        "regret": regret
        and {
            "pick": regret.pick,
            "best": regret.best,
            "share": short(regret.share),
            "noise": short(regret.noise),
        },
        "rescored": None if conclusion.rescored is None else _rescored(conclusion.rescored),
        "calibration": None
        if conclusion.calibrated is None
        else [
            {
                "class": c.fitted.subject.name,
                "figures": dict(c.fitted.figures),
                "errors": c.held_out,
            }
            for c in conclusion.calibrated.classes
        ],
    }


def pick_row(prepared: Prepared, pick: Pick) -> dict[str, Any]:
    """Returns a pick before it is measured: why, and what is predicted."""
    metrics = pick.trial.metrics
    names = (*prepared.objectives, "median_ttft_ms", "median_tpot_ms", "request_throughput")
    return {
        "trial": pick.number,
        "deployment": name_of(prepared.result, pick.trial),
        "reason": pick.reason,
        "is_control": pick.is_control,
        "predicted": {m: short(metrics[m]) for m in dict.fromkeys(names) if m in metrics},
    }


def _pick(conclusion: Conclusion, index: int) -> dict[str, Any]:
    measured: Measured = conclusion.measured[index]
    pick = measured.pick
    return {
        "trial": pick.number,
        "deployment": name_of(conclusion.prepared.result, pick.trial),
        "reason": pick.reason,
        "is_control": pick.is_control,
        "repeats": len(measured.repeats),
        "failure": measured.failure,
        "metrics": [_row(row) for row in conclusion.rows[index]],
        "engine": [
            {
                "fact": fact.name,
                "unit": fact.unit,
                "predicted": short(fact.predicted),
                "logged": short(fact.logged),
                "error": short(fact.error),
            }
            for fact in conclusion.facts[index]
        ],
        "facts": {k: v if isinstance(v, str) else short(v) for k, v in measured.facts.items()},
        "notes": list(measured.notes),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "metric": row.metric,
        "predicted": short(row.predicted),
        "measured": short(row.measured),
        "error": short(row.error),
        "repeat_spread": short(row.spread),
        "interval_80": row.interval and [short(end) for end in row.interval],
        "is_inside": row.is_inside,
    }


def _order(ranking: Ranking) -> dict[str, Any]:
    return {
        "metric": ranking.metric,
        "kendall_tau": short(ranking.tau),
        "pairs_beyond_noise": len(ranking.pairs),
        "pairs_kept": ranking.kept,
        "turned": [[p.first, p.second] for p in ranking.pairs if not p.is_kept],
    }


def _rescored(rescored: Rescored) -> dict[str, Any]:
    return {
        "method": METHODS[rescored.method],
        "winner": rescored.winner,
        "lead": short(rescored.lead),
        "frontier": [t.number for t in rescored.frontier],
        "entered": list(rescored.entered),
        "left": list(rescored.left),
    }


def short(value: float) -> float | None:
    """Returns a figure with DIGITS digits, None for what is no number or infinite."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
