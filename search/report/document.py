"""What a report shows: a run as plain values in columns, small for thousands of trials too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dynosim.search.figure import short_name
from dynosim.search.metric import LATENCIES, METRICS
from dynosim.search.report.basis import basis, summary
from dynosim.search.report.intervals import trial_intervals
from dynosim.search.result import SearchResult
from dynosim.search.slo import Slo
from dynosim.search.table import DEPLOYMENT_COLUMNS
from dynosim.search.trial import Trial

DIGITS = 6
"""Significant digits of a figure: beyond what any prediction is good for."""
MOST_REFUSED = 2000
"""Trials refused before simulation that are listed one by one; all of them are counted."""
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
COLOURED = ("backend", "gpu", "model", "backend_version")
"""Fields that give points their colour, the first that varies."""


def document(
    result: SearchResult,
    manifest: Mapping[str, Any],
    *,
    context: str = "",
    files: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """Returns the values of a report, all fit for JSON.

    ``context`` is YAML that makes a deployment's lines runnable (workload, SLOs, seed), ``files``
    are names of files that ``dynosim simulate`` takes, by trial. What cannot be computed from the
    trials (versions, importances, growth of the hypervolume) is the manifest's.
    """
    listed = _listed(result.trials)
    fields = _fields(listed)
    varied = [f["name"] for f in fields if "codes" in f]
    simulated = [i for i, t in enumerate(listed) if t.is_simulated]
    reasons = _reasons(result.trials)
    simulations = sum(t.is_simulated for t in result.trials)
    return {
        "title": _title(result.trials),
        "summary": summary(result, manifest),
        "axes": _axes(result),
        "colour": next((name for name in (*COLOURED, *varied) if name in varied), ""),
        "objectives": [{**_metric(o.metric), "sign": o.sign} for o in result.space.objectives],
        "limits": [_limit(limit) for limit in result.space.limits],
        "fields": fields,
        "metrics": _metrics(result, [listed[i] for i in simulated]),
        "reasons": reasons,
        **_trials(listed, simulated, [r["name"] for r in reasons]),
        "unlisted": len(result.trials) - len(listed),
        "frontier": [t.number for t in result.frontier],
        "knee": result.knee and result.knee.number,
        "cheapest": result.cheapest and result.cheapest.number,
        "mark_texts": {
            "knee": "Knee",
            "cheapest": "Cheapest within limits" if result.space.limits else "Cheapest",
        },
        "shares": {str(k): v for k, v in result.shares_best.items()},
        "chances": {str(k): list(map(_number, chance)) for k, chance in result.chances.items()},
        "intervals": _intervals(result, manifest),
        "growth": {
            "gains": manifest["hypervolume_gains"],
            "reference": [_number(v) for v in manifest["hypervolume_reference"]],
            "simulations": simulations,
        },
        "importances": manifest["importances"],
        "context": context,
        "files": {str(k): v for k, v in (files or {}).items()},
        "basis": basis(result, manifest),
        "manifest": _finite(manifest),
    }


def _listed(trials: Sequence[Trial]) -> list[Trial]:
    """Returns the trials without most of those that never ran, where these are many."""
    refused = [t.number for t in trials if not t.is_simulated][MOST_REFUSED:]
    dropped = set(refused)
    return [t for t in trials if t.number not in dropped]


def _title(trials: Sequence[Trial]) -> str:
    def names(field: str) -> str:
        found = list(dict.fromkeys(str(getattr(t.deployment, field)) for t in trials))
        return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")

    return f"{names('model')} on {names('gpu')}" if trials else "A search without trials"


def _axes(result: SearchResult) -> tuple[str, str]:
    """Returns the metrics across and up at first: as in ``frontier.png``."""
    from dynosim.search.figure import axis_metrics

    return axis_metrics(result)


def _metric(name: str) -> dict[str, Any]:
    metric = METRICS[name]
    return {
        "name": name,
        "label": metric.label,
        "unit": metric.unit,
        "axis": metric.axis,
        "sign": 1.0 if metric.better == "maximize" else -1.0,
    }


def _limit(limit: Any) -> dict[str, Any]:
    is_slo = isinstance(limit, Slo)
    return {
        "metric": limit.metric,
        "text": str(limit),
        "value": limit.limit_ms if is_slo else limit.limit,
        "is_least": not is_slo and limit.is_least,
    }


def _metrics(result: SearchResult, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Returns the metrics that any trial has, with their values; axes are those that differ."""
    needed = {o.metric for o in result.space.objectives} | {x.metric for x in result.space.limits}
    names = [n for n in METRICS if n in needed or _is_told(n)]
    rows = []
    for name in names:
        values = [_number(t.metrics.get(name, math.nan)) for t in trials]
        known = set(values) - {None}
        if known or name in needed:
            chosen = {"is_axis": len(known) > 1 or name in needed, "values": values}
            rows.append({**_metric(name), **chosen})
    signs = {o.metric: o.sign for o in result.space.objectives}
    return [{**row, "sign": signs.get(row["name"], row["sign"])} for row in rows]


def _is_told(name: str) -> bool:
    """Whether a metric is among those of the report: of latencies not every statistic is."""
    statistic, _, kind = name.removesuffix("_ms").partition("_")
    return kind not in LATENCIES or not name.endswith("_ms") or statistic in STATISTICS


def _fields(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Returns a deployment's fields: their values in words and as YAML, and who has which."""
    rows = [asdict(t.deployment) for t in trials]
    return [_field(name, [row[name] for row in rows]) for name in DEPLOYMENT_COLUMNS if rows]


def _field(name: str, column: Sequence[Any]) -> dict[str, Any]:
    import yaml

    keys = [repr(value) for value in column]
    by_key = dict(zip(keys, column, strict=True))
    known = [v for v in by_key.values() if v is not None]
    is_number = all(isinstance(v, int | float) and not isinstance(v, bool) for v in known)
    first = list(by_key)
    # Numbers rise, after the default; anything else stands in the order of its appearance.
    order = sorted(first, key=lambda k: (by_key[k] is not None, by_key[k])) if is_number else first
    field = {
        "name": name,
        "values": [_words(by_key[key]) for key in order],
        "lines": [
            "" if by_key[key] is None else yaml.safe_dump({name: by_key[key]}) for key in order
        ],
        "is_number": is_number,
    }
    if len(order) > 1:
        codes = {key: code for code, key in enumerate(order)}
        field["codes"] = [codes[key] for key in keys]
    return field


def _words(value: object) -> str:
    if value is None:
        return "default"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _trials(
    trials: Sequence[Trial], simulated: Sequence[int], reasons: Sequence[str]
) -> dict[str, Any]:
    """Returns the columns that every trial has, texts as positions in lists."""
    details, timings = _Texts(), _Texts()
    return {
        "trials": {
            "number": [t.number for t in trials],
            "name": [short_name(t) for t in trials],
            "reason": [-1 if t.reason is None else reasons.index(t.reason) for t in trials],
            "detail": [details.code(t.detail) for t in trials],
            "timing": [timings.code(t.timing) for t in trials],
            "simulated": list(simulated),
        },
        "details": list(details),
        "timings": list(timings),
    }


class _Texts(dict[str, int]):
    """Texts by first appearance."""

    def code(self, text: str) -> int:
        return self.setdefault(text, len(self))


def _reasons(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """Returns why trials are infeasible, the most frequent first, with an example each."""
    infeasible = [t for t in trials if t.reason is not None]
    counts = Counter(str(t.reason) for t in infeasible)
    examples = {str(t.reason): f"trial {t.number}: {t.detail}" for t in reversed(infeasible)}
    return [
        {"name": name, "count": count, "example": examples[name]}
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _intervals(
    result: SearchResult, manifest: Mapping[str, Any]
) -> dict[str, dict[str, tuple[float, float]]]:
    """Returns where measurements of the frontier and the marked trials are expected."""
    marked = [t for t in (result.knee, result.cheapest) if t is not None]
    is_open = manifest["workload"].get("max_concurrency") is None
    chosen = {t.number: t for t in (*result.frontier, *marked)}
    found = {number: trial_intervals(t, is_open=is_open) for number, t in sorted(chosen.items())}
    return {str(number): intervals for number, intervals in found.items() if intervals}


def _number(value: float) -> float | None:
    """Returns a figure with DIGITS digits, None for what is no number."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _finite(value: Any) -> Any:
    """Returns plain values without the infinities and NaN that JSON does not know."""
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)
