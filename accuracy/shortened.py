"""Cases cut short: enough requests to see how a prediction reacts, too few to be held to."""

from __future__ import annotations

from dataclasses import replace

from dynosim.accuracy.case import Case
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec

REQUESTS = 600
WAVES = 3
"""Of a closed loop at least this many requests for every slot."""


def shortened(case: Case) -> Case:
    """Returns the case with its first requests only, under another ``row``; itself if it is short.

    A load that is drawn is drawn anew, shorter.
    """
    load = case.workload
    most = max(REQUESTS, WAVES * (load.max_concurrency or 0))
    if isinstance(load, Workload):
        cut: Workload | WorkloadSpec = _first(load, most)
    elif load.trace is None and (load.num_prompts or 0) > most:
        cut = replace(load, num_prompts=most)
    else:
        cut = load
    return case if cut is load else replace(case, workload=cut, row=f"{case.row} (shortened)")


def _first(load: Workload, most: int) -> Workload:
    if len(load) <= most:
        return load
    return replace(
        load,
        arrival_s=load.arrival_s[:most],
        input_tokens=load.input_tokens[:most],
        output_tokens=load.output_tokens[:most],
        prefix_ids=load.prefix_ids[: int(load.prefix_offsets[most])],
        prefix_offsets=load.prefix_offsets[: most + 1],
        priority=None if load.priority is None else load.priority[:most],
    )
