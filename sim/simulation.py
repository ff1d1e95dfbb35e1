"""A run and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynosim.hardware_models.memory.plan import MemoryPlan
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing.source import OpSource
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.sim.deployment import Deployment
from dynosim.sim.metrics import Metrics, per_gpu, summarize
from dynosim.sim.planned_engine import PlannedEngine
from dynosim.sim.results import RunResult

if TYPE_CHECKING:
    from dynosim.hardware_models.timing.data_parallel import DataParallelTimer
    from dynosim.sim.scaling_metrics import ScaledPool


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A run and what it rests on: the engines, and the prefill pool's where there is one."""

    deployment: Deployment
    decode: PlannedEngine
    prefill: PlannedEngine | None
    result: RunResult
    warnings: tuple[str, ...]

    @property
    def engine(self) -> ResolvedEngine:
        """The engine that answers come from."""
        return self.decode.engine

    @property
    def memory(self) -> MemoryPlan:
        """Its memory plan."""
        return self.decode.memory

    @property
    def timer(self) -> StepTimer | DataParallelTimer:
        """Its step times."""
        return self.decode.timer

    @property
    def sources(self) -> tuple[OpSource, ...]:
        """Where the step times of all engines come from."""
        ours = self.decode.timer.sources
        return ours if self.prefill is None else (*ours, *self.prefill.timer.sources)

    @property
    def usd_per_gpu_hour(self) -> float | None:
        """The mean price of the GPUs; None where one of them has none."""
        price = self.engine.gpu.cloud_price_usd_hour
        if self.prefill is None or price is None:
            return price
        own = self.prefill.engine.gpu.cloud_price_usd_hour
        share = self.deployment.num_prefill_gpus / self.deployment.num_gpus
        return None if own is None else share * own + (1.0 - share) * price

    def metrics(self, slos_ms: Mapping[str, float] | None = None) -> Metrics:
        """Returns :func:`dynosim.sim.metrics.summarize`, and rates and cost per GPU."""
        metrics = summarize(self.result, slos_ms)
        pools = self._scaled_pools() if self.deployment.is_scaled else []
        if not pools:
            return metrics | per_gpu(metrics, self.deployment.num_gpus, self.usd_per_gpu_hour)
        from dynosim.sim.scaling_metrics import scaling_metrics

        metrics |= scaling_metrics(*pools)
        price = self.usd_per_gpu_hour
        if price is not None and self.prefill is not None and metrics["gpu_hours"]:
            price = metrics["usd_total"] / metrics["gpu_hours"]
        return metrics | per_gpu(metrics, metrics["mean_gpus"], price)

    def _scaled_pools(self) -> list[ScaledPool]:
        """Returns what became of the replicas of every pool, the one that answers first."""
        from dynosim.sim.scaling_metrics import ScaledPool

        hand_overs = self.result.hand_overs
        logs = [self.result.scaling, None if hand_overs is None else hand_overs.scaling]
        return [
            ScaledPool(
                log=log,
                gpus_per_replica=planned.engine.args.gpus_per_replica,
                usd_per_gpu_hour=planned.engine.gpu.cloud_price_usd_hour,
            )
            for log, planned in zip(logs, (self.decode, self.prefill), strict=True)
            if log is not None and planned is not None
        ]
