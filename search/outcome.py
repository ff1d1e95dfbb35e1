"""What evaluating one deployment gives; light enough for a worker process (no third parties)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.columns import Workload

Reason = Literal[
    "requirement",
    "over_gpu_budget",
    "over_usd_budget",
    "over_watt_budget",
    "unsupported",
    "tp_does_not_divide_heads",
    "oom",
    "kv_smaller_than_max_model_len",
    "unstable_queue",
    "refuses_requests",
    "slo",
    "constraint",
    "undefined_metric",
    "error",
]
"""Why a trial is infeasible. Those before ``unstable_queue`` are known before any simulation."""

REASONS: tuple[Reason, ...] = get_args(Reason)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What every candidate of one search is judged on; sent to each worker once.

    ``goodput_ms`` are limits per request, in ms by kind (``ttft``, ``tpot``, …). A deployment may
    refuse ``max_refused`` requests as longer than its ``max_model_len``: as many as every
    candidate of the space must. A candidate that takes longer than ``timeout_s`` seconds of wall
    time has failed (None: it may take any).
    """

    workload: Workload
    seed: int = 0
    max_refused: int = 0
    goodput_ms: Mapping[str, float] = field(default_factory=dict)
    timeout_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Metrics of one simulated deployment, or why there are none.

    ``reason`` is None where the run gave metrics; SLOs are judged later, from ``metrics``.
    ``instability`` is > 0 where the queue grew without bound (see
    :func:`dynosim.search.stability.instability`). ``timing`` is where its seconds come from:
    ``measured``, ``transferred`` or ``roofline``, the weakest of its matrix products, attention
    and communication.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    reason: Reason | None = None
    detail: str = ""
    traceback: str = ""
    instability: float = -1.0
    timing: str = ""
    warnings: tuple[str, ...] = ()


class Evaluator(Protocol):
    """Runs one deployment on a task; a module-level function, since workers import it by name.

    An exception it raises becomes a failed trial with its traceback.
    """

    def __call__(self, deployment: Deployment, task: Task) -> Outcome: ...


Screen = Callable[[Deployment], Outcome | None]
"""Returns why a deployment cannot run, or None; costs no simulation."""
