"""What a space itself rules out, before memory is asked: requirements and budgets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import Gpu, get_gpu
from dynosim.hardware_models.llm.catalog import get_model
from dynosim.hardware_models.llm.quality import quality_of
from dynosim.hardware_models.resolve import quantized
from dynosim.search.bound import Bound
from dynosim.search.expression import Expression
from dynosim.search.outcome import Outcome, Screen
from dynosim.sim.deployment import Deployment


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a deployment may have at most; None is no limit. Watts are the boards' TDP."""

    max_gpus: int | None = None
    max_usd_per_hour: float | None = None
    max_watts: float | None = None

    def refusal(self, deployment: Deployment) -> Outcome | None:
        """Returns what a deployment has too much of; None where it fits. Unpriced GPUs do not."""
        gpus = deployment.num_gpus
        if self.max_gpus is not None and gpus > self.max_gpus:
            detail = f"{gpus} GPUs, budget {self.max_gpus}"
            return Outcome(reason="over_gpu_budget", detail=detail)
        if self.max_usd_per_hour is not None:
            usd = _sum(deployment, lambda gpu: gpu.cloud_price_usd_hour)
            if usd > self.max_usd_per_hour:
                found = f"{usd:.2f} USD/h" if math.isfinite(usd) else "a GPU without a price"
                detail = f"{found}, budget {self.max_usd_per_hour:g} USD/h"
                return Outcome(reason="over_usd_budget", detail=detail)
        if self.max_watts is not None:
            watts = _sum(deployment, lambda gpu: gpu.tdp_w)
            if watts > self.max_watts:
                detail = f"{watts:,.0f} W of GPU boards, budget {self.max_watts:,.0f} W"
                return Outcome(reason="over_watt_budget", detail=detail)
        return None


def _sum(deployment: Deployment, figure: Callable[[Gpu], float | None]) -> float:
    """Returns a figure of both pools' GPUs together; infinite where one of them has none."""
    prefill = deployment.num_prefill_gpus
    pools = [(deployment.gpu, deployment.num_gpus - prefill)]
    if prefill:
        pools.append((deployment.prefill_gpu or deployment.gpu, prefill))
    found = [(figure(get_gpu(name)), count) for name, count in pools]
    return sum(math.inf if value is None else value * count for value, count in found)


def rules_screen(
    budget: Budget, requirements: Iterable[Expression], bounds: Iterable[Bound]
) -> Screen:
    """Returns the screen of a space's own rules, in the order: requirements, budget, quality."""
    required = tuple(requirements)
    floors = tuple(b for b in bounds if b.metric == "quality")

    def screen(deployment: Deployment) -> Outcome | None:
        broken = next((r for r in required if not r.holds(deployment)), None)
        if broken is not None:
            return Outcome(reason="requirement", detail=f"not {broken}")
        return budget.refusal(deployment) or _quality_refusal(deployment, floors)

    return screen


def _quality_refusal(deployment: Deployment, floors: tuple[Bound, ...]) -> Outcome | None:
    quality = _quality(deployment.model, deployment.quantization) if floors else None
    if quality is None:
        return None
    missed = next((f for f in floors if f.violation({"quality": quality}) > 0), None)
    if missed is None:
        return None
    return Outcome(reason="constraint", detail=f"{missed}: found {quality:.4g}")


@lru_cache(maxsize=1024)
def _quality(model: str, quantization: str | None) -> float | None:
    try:
        return quality_of(quantized(get_model(model), quantization))
    except UserError:
        return None  # The next screen says what is wrong.
