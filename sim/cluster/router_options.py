"""How requests reach the replicas: the router, what it knows, and whom it lets in."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from dynosim.hardware_models.engine_args import Positive
from dynosim.hardware_models.errors import UserError

NonNegative = Annotated[float, Ge(0)]
QueuePolicy = Literal["fcfs", "lcfs", "wspt"]
Overload = Literal["wait", "shed"]
Predicted = Literal["ttft", "e2el"]


@dataclass(frozen=True, kw_only=True)
class RouterOptions:
    """A router by name, its options, and the thresholds of admission.

    A replica that has reached a threshold takes no further request until it is below again.
    """

    router: str = "round_robin"
    """How requests are spread over the replicas."""
    router_replicas: Positive = 1
    """Routers side by side, each of which knows only the requests that it sent."""
    router_event_lag_s: NonNegative = 0.0
    """Seconds until routers learn what entered or left a prefix cache."""
    router_overlap_weight: NonNegative = 1.0
    """Credit for a cached block of the prompt, in blocks of prefill (kv_aware)."""
    router_host_weight: NonNegative = 0.75
    """The same for one that lies in the replica's host memory (kv_aware)."""
    router_disk_weight: NonNegative = 0.25
    """The same for one that lies on its drive, or in shared storage (kv_aware)."""
    router_prefill_load_scale: NonNegative = 1.0
    """Weight of blocks to prefill beside blocks that decode (kv_aware)."""
    router_temperature: NonNegative = 0.0
    """Softmax over costs scaled to a spread of 1; 0 takes the least (kv_aware)."""
    router_prefix_blocks: Positive = 1
    """Leading prefix blocks of the workload that are hashed (prefix_hash)."""
    router_load_bound: Annotated[float, Ge(1)] = 1.25
    """Most requests of a replica over the mean; inf for no bound (prefix_hash)."""
    router_queue_weight: NonNegative = 2.0
    """Weight of a short queue (weighted_score)."""
    router_kv_weight: NonNegative = 2.0
    """Weight of free KV blocks (weighted_score)."""
    router_prefix_weight: NonNegative = 3.0
    """Weight of the cached share of the prompt (weighted_score)."""
    router_predicts: Predicted = "ttft"
    """What is predicted for each replica (cost_aware)."""

    router_max_outstanding: Positive | None = None
    """Threshold: unfinished requests of a replica."""
    router_max_waiting: Positive | None = None
    """Threshold: requests of a replica that are not running yet."""
    router_max_kv_use: Annotated[float, Gt(0), Le(1)] | None = None
    """Threshold: share of a replica's KV blocks that requests hold."""
    router_ttft_deadline_ms: Annotated[float, Gt(0)] | None = None
    """Shed requests that would wait longer for their first token, as predicted."""
    router_overload: Overload = "wait"
    """What becomes of a request when all replicas are at a threshold."""
    router_queue_policy: QueuePolicy = "fcfs"
    """Who of those that wait goes next: first come, last come, or shortest prompt."""
    router_max_queue: Positive | None = None
    """Requests that may wait at a router; any more are shed."""

    @property
    def has_thresholds(self) -> bool:
        """Whether any replica may be closed to requests."""
        limits = (self.router_max_outstanding, self.router_max_waiting, self.router_max_kv_use)
        return any(limit is not None for limit in limits)

    @property
    def admits_all(self) -> bool:
        """Whether every request goes to a replica as it comes."""
        return not self.has_thresholds and self.router_ttft_deadline_ms is None

    def changed(self) -> list[str]:
        """Returns the names of the options that are not at their defaults."""
        return [f.name for f in fields(RouterOptions) if getattr(self, f.name) != f.default]

    def check_admission(self) -> None:
        """Raises UserError where an option of the queue is set and nobody would ever wait."""
        waits = self.has_thresholds and self.router_overload == "wait"
        hint = "allowed beside router_max_outstanding, router_max_waiting or router_max_kv_use"
        if self.router_overload != "wait" and not self.has_thresholds:
            raise UserError("there is no threshold", where="router_overload", hint=hint)
        for name in ("router_queue_policy", "router_max_queue"):
            if name in self.changed() and not waits:
                message = "no request waits at the router"
                raise UserError(message, where=name, hint=f"{hint}, while router_overload is wait")


ROUND_ROBIN = RouterOptions()
"""Every replica in turn, nobody shed."""
