"""From a candidate to the files of a target."""

from __future__ import annotations

from collections.abc import Mapping

from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.hardware_models.registry import find_module, module_names
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.planning.exports.base import Candidate, Files
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

_PACKAGE = "dynosim.planning.exports"
_TOOLS = {"base", "bench_load", "export", "knobs"}


def targets() -> list[str]:
    """Returns the names of all targets, as the command line spells them."""
    return [name.replace("_", "-") for name in module_names(_PACKAGE) if name not in _TOOLS]


def export(
    deployment: Deployment,
    target: str,
    *,
    workload: WorkloadSpec | None = None,
    goodput_ms: Mapping[str, float] | None = None,
    seed: int = 0,
) -> Files:
    """Returns the files (name -> text) that launch a deployment, or send its workload.

    Raises UserError for an unknown target, and for whatever the target has no word for.
    """
    name = target.replace("_", "-")
    if name not in targets():
        raise unknown_name("target", target, targets(), where="--to")
    if deployment.prefill_replicas:
        raise UserError(
            "launch files of two pools are not written",
            where="prefill_replicas",
            hint="leave it out and export the engine of each pool by itself",
        )
    candidate = Candidate(
        deployment=deployment,
        engine=resolve_engine(deployment),
        workload=workload or WorkloadSpec(),
        goodput_ms=goodput_ms or {},
        seed=seed,
    )
    files: Files = find_module(_PACKAGE, "target", name).write(candidate)
    return files
