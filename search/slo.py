"""Service-level objectives: limits on latency percentiles that a feasible trial keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.search.field_type import nearest, shown
from dynosim.search.metric import LATENCIES, STATISTICS, SYNONYMS, statistic_name
from dynosim.search.objective import DEFAULT_STATISTIC
from dynosim.search.source import KeyPath, Source

KINDS = ("ttft", "tpot", "itl", "e2el")


@dataclass(frozen=True)
class Slo:
    """``statistic`` of ``kind`` must not exceed ``limit_ms``."""

    kind: str
    statistic: str
    limit_ms: float

    @property
    def metric(self) -> str:
        """The name of the bounded metric in a trial's metrics."""
        return f"{self.statistic}_{self.kind}_ms"

    def violation(self, metrics: Mapping[str, float]) -> float:
        """Returns the relative excess over the limit; ≤ 0 is kept.

        NaN is kept: where every answer has one token there is no TPOT to miss. A metric that is
        not reported at all is missed by infinity.
        """
        value = metrics.get(self.metric, math.inf)
        return -1.0 if math.isnan(value) else value / self.limit_ms - 1.0

    def __str__(self) -> str:
        return f"{self.statistic} {LATENCIES[self.kind]} ≤ {self.limit_ms:g} ms"


def goodput_limits(slos: tuple[Slo, ...]) -> dict[str, float]:
    """Returns the limits in ms that one request must keep to count as good, by kind.

    Where one kind has limits at several percentiles, the loosest: a request in the tail that the
    tail's own limit allows is good.
    """
    limits: dict[str, float] = {}
    for slo in slos:
        if slo.kind == "itl":
            continue  # Gaps are pooled over requests: one request has no single ITL.
        limits[slo.kind] = max(slo.limit_ms, limits.get(slo.kind, 0.0))
    return limits


def parse_slos(value: object, source: Source) -> tuple[Slo, ...]:
    """Returns the limits under ``slos:``: ``{ttft: 500}`` bounds p99, ``{ttft: {p95: 500}}`` p95.

    Limits are milliseconds. InputErrors lists every problem.
    """
    if not isinstance(value, dict):
        raise source.error(
            ("slos",), f"found {shown(value)}", "allowed: a mapping such as {ttft: 500, tpot: 50}"
        )
    slos: list[Slo] = []
    errors: list[UserError] = []
    for key, limits in value.items():
        kind = str(key).replace("-", "_").lower()
        kind = SYNONYMS.get(kind, kind)
        if kind not in KINDS:
            close = nearest(key, KINDS)
            hint = f"nearest: {close[0]}; " if close else ""
            allowed = f"{hint}allowed: {', '.join(KINDS)}, in ms"
            errors.append(source.error(("slos", key), "unknown key", allowed))
            continue
        by_statistic = limits if isinstance(limits, dict) else {DEFAULT_STATISTIC: limits}
        for statistic, limit in by_statistic.items():
            path: KeyPath = ("slos", key)
            path = (*path, statistic) if isinstance(limits, dict) else path
            try:
                slos.append(_parse_one(kind, statistic, limit, path, source))
            except UserError as error:
                errors.append(error)
    if errors:
        raise InputErrors(errors)
    return tuple(slos)


def _parse_one(kind: str, statistic: object, limit: object, path: KeyPath, source: Source) -> Slo:
    name = statistic_name(statistic)
    if name is None:
        raise source.error(path, "unknown statistic", f"allowed: {', '.join(STATISTICS)}")
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not is_number or not math.isfinite(limit) or limit <= 0:  # type: ignore[arg-type, operator]
        raise source.error(
            path, f"found {shown(limit)}", "allowed: a number > 0, in ms, or {p99: ms, p50: ms}"
        )
    return Slo(kind, name, float(limit))  # type: ignore[arg-type]
