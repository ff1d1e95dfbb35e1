"""AIPerf's ``sweep_aggregate/profile_export_aiperf_sweep.json``: a run for each combination.

Metrics are those of ``profile_export_aiperf.json``; of repeated trials they are the means.
"""

from __future__ import annotations

from dynosim.accuracy.results import aiperf
from dynosim.accuracy.results.base import Document, MeasuredRun


def recognises(document: Document) -> bool:
    """Returns whether this is the tool's file."""
    return isinstance(document.get("per_combination_metrics"), list)


def read(document: Document, where: str) -> list[MeasuredRun]:
    """Returns the runs of a file; what was swept (concurrency, request_rate) is their load."""
    runs = []
    for i, combination in enumerate(document["per_combination_metrics"]):
        flat = {**combination.get("metrics", {}), "input_config": combination.get("parameters", {})}
        runs += aiperf.read(flat, f"{where}: per_combination_metrics[{i}]")
    return runs
