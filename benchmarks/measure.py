"""Runs one case in this process and prints what it cost, as JSON: ``measure.py CASE ARGUMENT``.

``--peer-law`` replaces the measured kernels' times by the polynomials that ``dynamo.replay`` was
given, and its 2,000 KV blocks, so that outcomes can be compared.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import resource
import time
from dataclasses import asdict, dataclass, replace

from cases import CASES, Case
from dynosim.hardware_models.memory.plan import plan_memory
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.cluster.frontend import Frontend
from dynosim.sim.cluster_plan import cluster_spec
from dynosim.sim.metrics import summarize
from dynosim.sim.planned_engine import PlannedEngine, resolve_for
from peer_law import PeerLaw

OUTCOMES = (
    *("mean_ttft_ms", "p99_ttft_ms", "mean_itl_ms", "mean_e2el_ms"),
    *("output_throughput", "prefix_hit_rate"),
)


@dataclass(frozen=True)
class Measurement:
    """CPU seconds of one case's parts, and the memory that its process needed at most."""

    requests: int
    setup_s: float
    """Workload, defaults, memory plan, kernel times."""
    run_s: float
    metrics_s: float
    runs: int
    """Runs of steps that the engines began; a leap is one."""
    steps: int
    peak_mib: float
    outcomes: dict[str, float]

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the simulation and its metrics, without setting up."""
        return self.run_s + self.metrics_s


def compile_case(case: Case, *, peer_law: bool = False) -> ClusterSpec:
    """Returns the cluster of a case, ready to run."""
    deployment, workload = case
    engine, _ = resolve_for(deployment, workload)
    memory = plan_memory(engine)
    timer = StepTimer.compile(engine)
    spec = cluster_spec(deployment, PlannedEngine(engine=engine, memory=memory, timer=timer))
    if not peer_law:
        return spec
    limits = replace(
        spec.limits,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        block_size=512,
        async_scheduling=False,
    )
    return replace(
        spec, timer=PeerLaw(), limits=limits, num_blocks=2000, frontend_s=0.0, frontend=Frontend()
    )


def measure(name: str, argument: str, *, peer_law: bool = False) -> Measurement:
    """Returns what one run of the case cost in this process."""
    at = [time.process_time()]
    case = CASES[name](argument)
    spec = compile_case(case, peer_law=peer_law)
    at.append(time.process_time())
    result = run_cluster(spec, case[1])
    at.append(time.process_time())
    metrics = summarize(result)
    at.append(time.process_time())
    setup_s, run_s, metrics_s = (b - a for a, b in itertools.pairwise(at))
    return Measurement(
        requests=len(case[1]),
        setup_s=setup_s,
        run_s=run_s,
        metrics_s=metrics_s,
        runs=sum(len(log.steps.counts) for log in result.replicas),
        steps=sum(len(log.steps) for log in result.replicas),
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        outcomes={name: metrics[name] for name in OUTCOMES},
    )


def main() -> None:
    """Measures the case that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("argument", help="a trace's path, or a number of requests")
    parser.add_argument("--peer-law", action="store_true")
    args = parser.parse_args()
    # As the command line does: there are few cycles and many objects.
    gc.disable()
    print(json.dumps(asdict(measure(args.case, args.argument, peer_law=args.peer_law))))


if __name__ == "__main__":
    main()
