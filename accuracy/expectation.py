"""What a simulation's user may expect of reality: intervals, and what the answer was fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dynosim.accuracy.intervals import ErrorModel, Interval, read_model
from dynosim.accuracy.kinds import basis_of, regime_of
from dynosim.hardware_models.backends import version_key
from dynosim.hardware_models.calibration.overheads import Calibration, gpu_class
from dynosim.sim.metrics import Metrics
from dynosim.sim.simulate import Simulation

METRICS = ("mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms", "request_throughput")


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """Intervals by metric (those that anything like it was measured of), and the calibration.

    ``extrapolated`` says in words where the deployment lies outside of what was calibrated.
    """

    intervals: Mapping[str, Interval]
    calibration: Calibration | None
    extrapolated: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Returns it as plain values for JSON."""
        row = self.calibration
        about = row and {
            "backend": row.backend,
            "versions": list(row.versions),
            "gpu_class": row.gpu_class,
            "figures": dict(row.figures),
            "groups": row.groups,
            "held_out": row.held_out,
        }
        return {
            "intervals_80": {name: asdict(i) for name, i in self.intervals.items()},
            "calibration": about,
            "extrapolated": list(self.extrapolated),
        }


def expect(
    simulation: Simulation, metrics: Metrics, model: ErrorModel | None = None
) -> Expectation:
    """Returns what to expect of a simulation; ``model`` is by default the shipped one.

    In an open loop the rate of requests is the load's, and has no interval.
    """
    model = model or read_model()
    fields = class_fields(simulation, metrics)
    is_open = simulation.result.workload.is_open
    found = {
        name: model.interval(name, metrics[name], fields)
        for name in METRICS
        if not (is_open and name == "request_throughput")
    }
    return Expectation(
        intervals={name: interval for name, interval in found.items() if interval is not None},
        calibration=simulation.engine.calibration,
        extrapolated=tuple(_extrapolated(simulation)),
    )


def class_fields(simulation: Simulation, metrics: Metrics) -> dict[str, str]:
    """Returns what tells the class of a simulation's errors."""
    engine = simulation.engine
    # Little's law: the mean number in the system is their rate times their mean stay.
    in_flight = metrics["request_throughput"] * metrics["mean_e2el_ms"] / 1e3
    return {
        "gpu": engine.gpu.key,
        "gpu_class": gpu_class(engine.gpu),
        "backend": engine.backend.name,
        "model_class": "MoE" if engine.model.is_moe else "dense",
        "basis": basis_of(simulation),
        "regime": regime_of(in_flight / simulation.deployment.replicas),
    }


def _extrapolated(simulation: Simulation) -> list[str]:
    engine = simulation.engine
    backend, row = engine.backend, engine.calibration
    if row is None:
        return [f"{backend.name} on {gpu_class(engine.gpu)} GPUs is not calibrated"]
    if row.covers(backend.version):
        return []
    oldest, newest = row.versions
    is_newer = version_key(backend.version) > version_key(newest)
    return [
        f"{backend.name} {backend.version} is "
        + (f"newer than {newest}" if is_newer else f"older than {oldest}")
        + ", which was calibrated"
    ]
