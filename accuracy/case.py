"""One measured point and what to simulate for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec

NO_FRONTEND: Mapping[str, float] = {
    "frontend_s": 0.0,
    "frontend_request_s": 0.0,
    "frontend_per_input_token_s": 0.0,
    "frontend_per_output_token_s": 0.0,
}
"""Overheads of measurements that were taken at the engine, not by a client."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A deployment, the load it was measured under, and what was measured.

    ``group`` is what is held out together (a model on a GPU under a backend: rows of one group
    share their errors); ``row`` says where the figures stand, as ``file:line``. ``measured`` has
    the names of :mod:`dynosim.sim.metrics`; TPOT is (E2EL - TTFT) / (output tokens - 1), whatever
    the source calls it. ``overheads`` replace figures of the backend for this case alone, because
    the measurement had no such part (a static batch has no front-end). ``assumed`` names what the
    source does not say, in words; ``tags`` are further classes to report by (``mode``: agg).
    ``limits_ms`` are given where what was measured is the largest rate that meets them: metric ->
    ms; the rate is then searched, from that of the workload on.
    """

    set: str
    group: str
    row: str
    deployment: Deployment
    workload: WorkloadSpec | Workload
    measured: Mapping[str, float]
    overheads: Mapping[str, float] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    limits_ms: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
