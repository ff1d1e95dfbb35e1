"""From a candidate to the files of a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.hardware_models.kv_transfer import kv_transfer_rules
from dynosim.hardware_models.registry import find_module, module_names
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.planning.exports.base import Candidate, Files
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import located_in_prefill
from dynosim.sim.workload.spec import WorkloadSpec

_PACKAGE = "dynosim.planning.exports"
_TOOLS = {"base", "bench_load", "export", "knobs", "autoscaling", "pd_router", "planner"}


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
    candidate = Candidate(
        deployment=deployment,
        engine=resolve_engine(deployment),
        workload=workload or WorkloadSpec(),
        goodput_ms=goodput_ms or {},
        seed=seed,
    )
    pool = deployment.prefill_pool
    if pool is not None:
        _check_hand_overs(deployment)
        engine = located_in_prefill(resolve_engine, pool)
        prefill = replace(candidate, deployment=pool, engine=engine, role="prefill")
        candidate = replace(
            candidate, deployment=deployment.decode_pool, role="decode", prefill=prefill
        )
    files: Files = find_module(_PACKAGE, "target", name).write(candidate)
    return files


def _check_hand_overs(deployment: Deployment) -> None:
    """Raises UserError for a way of handing prompts over that no backend has a word for."""
    if deployment.local_prefill_below_tokens:
        raise UserError(
            "no target leaves short prompts to the engines that decode",
            where="local_prefill_below_tokens",
            hint="0",
        )
    own = kv_transfer_rules(deployment.backend).overlap
    if deployment.kv_transfer_overlap not in (None, own):
        raise UserError(
            f"{deployment.backend} sends KV its own way",
            where="kv_transfer_overlap",
            hint=f"allowed: {own}",
        )
