"""What a load is: requests in flight, or requests a second, on one fixed mix of requests."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec

Kind = Literal["concurrency", "rate"]

LEAST_REQUESTS = 256
WAVES = 8
"""Requests per slot of a closed loop: the first starts everywhere at once and is not judged."""
SPAN_S = 120.0
"""Seconds that an open loop of synthetic requests lasts at least."""
MOST_REQUESTS = 20_000


@dataclass(frozen=True, kw_only=True)
class Load:
    """One size of the load: ``size`` requests in flight (``concurrency``) or a second (``rate``).

    Whatever its size and kind, the same seed draws the same requests, and for a rate the same
    arrivals, closer together: two loads differ by their size alone (common random numbers).
    """

    kind: Kind
    size: float

    @property
    def shown(self) -> str:
        """The size as a person writes it."""
        return f"{self.size:,.0f}" if self.kind == "concurrency" else f"{self.size:,.3g}"

    @property
    def warm_up(self) -> int:
        """Requests that start at once on an empty engine, and do not count."""
        return int(self.size) if self.kind == "concurrency" else 0


UNITS: dict[Kind, str] = {"concurrency": "requests in flight", "rate": "requests/s"}


def workload_at(spec: WorkloadSpec, load: Load, seed: int) -> Workload:
    """Returns the requests of ``spec`` sent with ``load``.

    A trace gives its requests, in order: a rate stretches its arrivals, a closed loop ignores
    them. UserError where it has no arrivals to stretch.
    """
    plain = replace(spec, seed=seed, request_rate=None, max_concurrency=None)
    if spec.trace is None:
        plain = replace(plain, num_prompts=spec.num_prompts or _requests(load), burstiness=1.0)
        if load.kind == "rate":
            paced = replace(plain, request_rate=load.size, burstiness=spec.burstiness)
            return build_workload(paced)
    requests = build_workload(plain)
    if load.kind == "concurrency":
        arrival_s = np.zeros(len(requests))
        return replace(requests, arrival_s=arrival_s, max_concurrency=int(load.size))
    return replace(requests, arrival_s=requests.arrival_s * (_rate(requests) / load.size))


def _requests(load: Load) -> int:
    wanted = WAVES * load.size if load.kind == "concurrency" else SPAN_S * load.size
    return int(min(max(LEAST_REQUESTS, wanted), max(MOST_REQUESTS, 2 * load.warm_up)))


def _rate(requests: Workload) -> float:
    """Returns the arrivals per second of a trace."""
    span_s = float(requests.arrival_s[-1] - requests.arrival_s[0])
    if not span_s > 0 or not math.isfinite(span_s):
        raise UserError(
            f"all requests of {requests.name} arrive at once: they have no rate",
            where="trace",
            hint="ask for the concurrency instead",
        )
    return (len(requests) - 1) / span_s


def check_fixed(spec: WorkloadSpec) -> None:
    """Raises UserError where a workload fixes what is searched for."""
    for name in ("request_rate", "max_concurrency"):
        if spec.given(name):
            raise UserError(
                f"found {getattr(spec, name):g}", where=name, hint="leave it out: it is searched"
            )
