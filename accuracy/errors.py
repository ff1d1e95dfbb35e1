"""From outcomes to errors: one a case and metric, and their statistics by class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dynosim.accuracy.halves import Half, half_of
from dynosim.accuracy.kinds import quantity_of, regime_of
from dynosim.accuracy.run import Outcome
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec


@dataclass(frozen=True, kw_only=True)
class Residual:
    """One metric of one case: what was measured, predicted, and the classes it counts in.

    ``quantity`` is the metric without its centre: a set's means and another's medians of TTFT are
    both ``ttft``. ``regime`` is told from the prediction, so that a prediction nobody has measured
    yet has one too. ``load`` is equal where requests, their lengths and their times are.
    """

    set: str
    group: str
    half: Half
    row: str
    gpu: str
    backend: str
    model_class: str
    regime: str
    basis: str
    metric: str
    quantity: str
    measured: float
    predicted: float
    load: str = ""

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, kw_only=True)
class ErrorRow:
    """Statistics of one class; errors are shares of the measured value.

    ``bias`` is the median of signed errors: above 0 where predictions are too high. ``within`` is
    the share of predictions off by at most a quarter.
    """

    key: tuple[str, ...]
    n: int
    median_ape: float
    p90_ape: float
    bias: float
    within: float


def residuals(outcomes: Iterable[Outcome]) -> list[Residual]:
    """Returns a residual for every metric that was both measured and predicted."""
    return [r for outcome in outcomes if outcome.refusal is None for r in _residuals(outcome)]


def _residuals(outcome: Outcome) -> list[Residual]:
    case, predicted = outcome.case, outcome.predicted
    engine = resolve_engine(case.deployment)
    # Little's law: the mean number in the system is their rate times their mean stay.
    in_flight = predicted["request_throughput"] * predicted["mean_e2el_ms"] / 1e3
    return [
        Residual(
            set=case.set,
            group=case.group,
            half=half_of(case.group),
            row=case.row,
            gpu=engine.gpu.key,
            backend=engine.backend.name,
            model_class="MoE" if engine.model.is_moe else "dense",
            regime=regime_of(in_flight / case.deployment.replicas),
            basis=outcome.basis,
            metric=metric,
            quantity=quantity_of(metric),
            measured=measured,
            predicted=predicted[metric],
            load=_load_name(case.workload),
        )
        for metric, measured in case.measured.items()
        if measured > 0 and np.isfinite(predicted.get(metric, float("nan")))
    ]


def _load_name(workload: WorkloadSpec | Workload) -> str:
    """Returns a name that equal loads have; a trace's columns have none."""
    return repr(workload) if isinstance(workload, WorkloadSpec) else ""


def error_rows(
    found: Iterable[Residual], key: Callable[[Residual], tuple[str, ...]]
) -> list[ErrorRow]:
    """Returns the statistics of every class that ``key`` tells apart, sorted by key."""
    classes: dict[tuple[str, ...], list[float]] = {}
    for residual in found:
        classes.setdefault(key(residual), []).append(residual.error)
    return [_row(name, errors) for name, errors in sorted(classes.items())]


def _row(key: tuple[str, ...], errors: Sequence[float]) -> ErrorRow:
    signed = np.asarray(errors)
    absolute = np.abs(signed)
    return ErrorRow(
        key=key,
        n=len(signed),
        median_ape=float(np.median(absolute)),
        p90_ape=float(np.quantile(absolute, 0.9)),
        bias=float(np.median(signed)),
        within=float((absolute <= 0.25).mean()),
    )
