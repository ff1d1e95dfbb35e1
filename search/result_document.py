"""A search's result, or one of its trials, as plain values for scripts: what ``--json`` prints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dynosim.search.dominance import dominator
from dynosim.search.explanation import trial_of
from dynosim.search.result import SearchResult
from dynosim.search.sensitivity import sensitivity
from dynosim.search.table import mark
from dynosim.search.trial import Trial


def result_document(result: SearchResult) -> dict[str, Any]:
    """Returns what was searched and how, the frontier with its marks, and what decided it.

    ``knee``, ``cheapest`` and ``frontier`` are as in the tables; a figure that does not exist is
    null.
    """
    objectives = result.space.objectives
    return {
        "candidates": result.space.size,
        "trials": len(result.trials),
        "feasible": sum(t.is_feasible for t in result.trials),
        "infeasible": dict(result.reasons.most_common()),
        "mode": result.mode,
        "ending": result.ending,
        "objectives": [{"metric": o.metric, "direction": o.direction} for o in objectives],
        "limits": [str(limit) for limit in result.space.limits],
        "knee": result.knee and result.knee.number,
        "cheapest": result.cheapest and result.cheapest.number,
        "frontier": [_trial(result, trial) for trial in result.frontier],
        "hypervolume": result.hypervolume,
        "importances": {item.metric: dict(item.shares) for item in result.importances},
        "output_dir": result.output_dir and str(result.output_dir),
    }


def trial_document(result: SearchResult, number: int) -> dict[str, Any]:
    """Returns a trial, what dominates it and by how much, and what one changed field would do.

    Gains and changes are relative. UserError where there is no such trial.
    """
    trial, known = trial_of(result, number), result.landscape
    steps = [] if known is None else sensitivity(trial.deployment, known, result.screen)
    return _trial(result, trial) | {
        "on_frontier": trial in result.frontier,
        "dominated_by": _dominator(result, trial),
        "neighbours": [
            {
                "field": step.field,
                "value": step.value,
                "changes": {name: factor - 1.0 for name, factor in step.factors.items()},
                "is_simulated": step.is_simulated,
                "reason": step.reason or None,
            }
            for step in steps
        ],
    }


def _dominator(result: SearchResult, trial: Trial) -> dict[str, Any] | None:
    found = dominator(trial, result.frontier, result.space.objectives)
    if found is None or not trial.is_feasible or trial in result.frontier:
        return None
    return {
        "trial": found.trial.number,
        "gains": _plain(found.gains),
        "changes": {name: list(pair) for name, pair in found.changes.items()},
    }


def _trial(result: SearchResult, trial: Trial) -> dict[str, Any]:
    share = result.shares_best.get(trial.number)
    return {
        "number": trial.number,
        "marks": mark(result, trial).split(),
        "reason": trial.reason,
        "detail": trial.detail or None,
        "timing": trial.timing or None,
        "deployment": asdict(trial.deployment),
        "metrics": _plain(trial.metrics),
        **({} if share is None else {"non_dominated_share": share}),
    }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a mapping with null in place of what JSON has no number for."""
    return {name: _finite(value) for name, value in values.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _plain(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
