"""Serving backends as data rows: versions, scheduling and memory defaults, overheads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One backend at one version; figures and their sources stand in ``data/backends/*.yaml``.

    ``tables_version`` is the version whose measured kernel tables stand in for ``version``.
    Host times are per engine step and per sequence of the batch; with asynchronous scheduling a
    step takes the larger of host and GPU time, else their sum. ``frontend_s`` is spent once per
    request before the engine sees it.
    """

    name: str
    version: str
    tables_version: str
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    asynchronous_scheduling: bool
    host_step_s: float
    host_per_sequence_s: float
    layer_launch_s: float
    frontend_s: float
