"""What an elastic run is made of."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.registry import find_module
from dynosim.hardware_models.startup.stage import StartupPlan
from dynosim.hardware_models.startup.storage import get_storage
from dynosim.sim.cluster.autoscalers.base import Autoscaler, ScalingContext
from dynosim.sim.cluster.scaling.failures import Failure, PoolName, parse_failures
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.cluster.scaling.start_spec import StartSpec
from dynosim.sim.workload.client import ClientPolicy

_AUTOSCALERS = "dynosim.sim.cluster.autoscalers"


@dataclass(frozen=True, kw_only=True)
class ScalingSpec:
    """How replicas come, go and fail; of ``size`` that may exist, ``initial`` serve at first."""

    options: ScalingOptions
    start: StartSpec
    initial: int
    size: int
    failures: tuple[Failure, ...] = ()
    infeasible: str = ""

    @property
    def may_slow_down(self) -> bool:
        """Whether steps of some replica will take longer for a while."""
        return any(failure.kind == "slow" for failure in self.failures)

    def looks_into_steps(self, client: ClientPolicy) -> bool:
        """Whether anything from outside may end or look at a run of an engine."""
        options = self.options
        looks = options.autoscaler_metric in ("kv_use", "slo_attainment")
        looks = looks and options.autoscaler is not None
        leaves = client.client_timeout_s is not None or client.cancels
        return options.has_failures or leaves or looks

    def make_autoscaler(self) -> Autoscaler | None:
        """Returns the autoscaler, None where nobody scales; raises UserError by its options."""
        name = self.options.autoscaler
        if name is None:
            return None
        module = find_module(_AUTOSCALERS, "autoscaler", name)
        context = ScalingContext(options=self.options, startup_s=self.start.plan.alone_s)
        autoscaler: Autoscaler = module.make(context)
        return autoscaler


def scaling_spec(
    options: ScalingOptions,
    start: StartSpec,
    replicas: int,
    infeasible: str = "",
    pool: PoolName = "",
) -> ScalingSpec:
    """Returns the spec of a pool of ``replicas`` at first.

    Raises UserError for bounds that contradict each other, failures that are none, and an unknown
    or incomplete autoscaler.
    """
    most = replicas
    initial = replicas
    if options.autoscaler is not None:
        if options.max_replicas is None:
            raise UserError("an autoscaler needs a bound", where="max_replicas")
        most = options.max_replicas
        if options.min_replicas > most:
            raise UserError(
                f"found {options.min_replicas}", where="min_replicas", hint=f"allowed: 0 to {most}"
            )
        initial = min(max(replicas, options.min_replicas), most)
    elif options.max_replicas is not None:
        raise UserError("nobody scales", where="max_replicas", hint="give an autoscaler")
    size = most + options.warm_replicas
    if start.plan.is_waking and options.warm_replicas:
        raise UserError(
            f"replicas that sleep ({start.plan.method}) are a reserve themselves",
            where="warm_replicas",
        )
    failures = parse_failures(options.failures, size, pool)
    spec = ScalingSpec(
        options=options,
        start=start,
        initial=initial,
        size=size,
        failures=failures,
        infeasible=infeasible,
    )
    spec.make_autoscaler()
    return spec


def steady(replicas: int) -> ScalingSpec:
    """Returns replicas that neither come nor go nor fail."""
    plan = StartupPlan(method="cold", stages=(), storage=get_storage("volume"))
    return ScalingSpec(
        options=ScalingOptions(), start=StartSpec(plan=plan), initial=replicas, size=replicas
    )
