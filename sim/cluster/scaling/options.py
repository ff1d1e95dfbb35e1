"""When replicas are added and taken away, and how they fail: options of a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from dynosim.hardware_models.engine_args import Positive

NonNegative = Annotated[float, Ge(0)]
Above0 = Annotated[float, Gt(0)]
ScalingMetric = Literal["queue", "concurrency", "kv_use", "request_rate", "slo_attainment"]


@dataclass(frozen=True, kw_only=True)
class ScalingOptions:
    """An autoscaler by name with its options, a warm reserve, and failures."""

    autoscaler: str | None = None
    """Who decides how many replicas there are: threshold, target_tracking, keda, predictive,
    scheduled; by default nobody, and there are as many as ``replicas``."""
    min_replicas: Annotated[int, Ge(0)] = 1
    """Fewest replicas; 0 lets requests wait for a start."""
    max_replicas: Positive | None = None
    """Most replicas; needed by every autoscaler."""
    autoscaler_metric: ScalingMetric = "queue"
    """What is looked at: waiting requests, unfinished requests or requests per second of a replica,
    share of KV blocks held, or share of answers within ``autoscaler_slo_ttft_ms`` and
    ``autoscaler_slo_tpot_ms``."""
    autoscaler_target: Above0 | None = None
    """Value of the metric that the autoscaler aims at, or adds replicas above (below, for
    slo_attainment)."""
    autoscaler_lower: NonNegative | None = None
    """Value below which replicas are taken away (threshold); by default half the target."""
    autoscaler_step: Positive = 1
    """Replicas added or taken away at once (threshold)."""
    autoscaler_tolerance: NonNegative = 0.1
    """Deviation from the target, as a share, at which nothing is done (target_tracking, keda)."""
    autoscaler_interval_s: Above0 = 15.0
    """Seconds between two decisions."""
    autoscaler_scrape_delay_s: NonNegative = 0.0
    """Age of what the autoscaler sees."""
    autoscaler_up_window_s: NonNegative = 0.0
    """Stabilisation: replicas are added only as the least of this long's decisions wants."""
    autoscaler_down_window_s: NonNegative = 300.0
    """Stabilisation: replicas are taken away only as the most of this long's decisions wants."""
    autoscaler_cooldown_s: NonNegative = 0.0
    """Seconds after a change in which there is no other."""
    autoscaler_schedule: str | None = None
    """Replicas from given seconds on, as in "0:2, 600:8" (scheduled)."""
    autoscaler_forecaster: str = "constant"
    """Who foretells the request rate: constant, seasonal, holt_winters, arima (predictive)."""
    autoscaler_season_s: Above0 | None = None
    """Period of the request rate (seasonal, holt_winters)."""
    autoscaler_lead_s: NonNegative | None = None
    """How far ahead is foretold (predictive); by default a start's seconds and one interval."""
    autoscaler_slo_ttft_ms: Above0 | None = None
    """TTFT that an answer should keep, for the metric slo_attainment and for what is feasible."""
    autoscaler_slo_tpot_ms: Above0 | None = None
    """TPOT that an answer should keep, for the metric slo_attainment."""
    autoscaler_slo_share: Annotated[float, Gt(0), Le(1)] = 0.9
    """Share of answers that should keep it."""
    warm_replicas: Annotated[int, Ge(0)] = 0
    """Started replicas kept in reserve beyond those that serve; each one used is replaced."""

    failure_rate_per_hour: NonNegative = 0.0
    """Crashes of a serving replica per hour (exponential)."""
    failure_repair_s: NonNegative = 0.0
    """Seconds after a crash before the replica starts again."""
    failures: str | None = None
    """Events at given seconds: "crash@120:0, gpu_loss@300:prefill1x600, slow@60:2x1.5x300,
    router@90x5": a replica crashes; one of the prefill pool loses a GPU for 600 s; one takes 1.5
    times as long for 300 s; routers are away for 5 s."""

    @property
    def is_scaled(self) -> bool:
        """Whether replicas come and go."""
        return self.autoscaler is not None or self.warm_replicas > 0 or self.has_failures

    @property
    def has_failures(self) -> bool:
        """Whether anything fails."""
        return self.failure_rate_per_hour > 0.0 or self.failures is not None
