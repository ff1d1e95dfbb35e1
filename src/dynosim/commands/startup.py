"""``dynosim startup``: what passes until a new replica serves."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from dynosim.commands.simulate import File
from dynosim.flags import Debug, Json, Quiet, takes_fields_of
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.startup.stage import StartupPlan
from dynosim.question import read_question
from dynosim.sim.cluster.scaling.replica_start import replica_start
from dynosim.sim.deployment import Deployment
from dynosim.summary import parallel_shape
from dynosim.terminal import print_json, print_note, table

AtOnce = Annotated[
    int, Parameter(metavar="INT", help="Replicas that start at the same time, and share storage.")
]


@takes_fields_of(Deployment=Deployment)
def startup_command(
    file: File = None,
    /,
    *,
    at_once: AtOnce = 1,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
    **flags: Any,
) -> None:
    """Show what passes until a new replica serves, stage by stage."""
    if at_once < 1:
        raise UserError(f"found {at_once}", where="--at-once", hint="allowed: >= 1")
    start = replica_start(read_question(file, flags).deployment)
    ends_s = start.at_once_s(at_once)
    if json:
        print_json(as_json(start.plan, ends_s))
        return
    print("\n".join(as_text(start.engine, start.plan, ends_s)))
    for note in start.plan.notes:
        print_note(f"note: {note}", quiet=quiet)


def as_json(plan: StartupPlan, ends_s: list[float]) -> dict[str, Any]:
    """Returns the start as plain values."""
    return {
        "method": plan.method,
        "storage": plan.storage.key,
        "stages": [
            {"name": s.name, "seconds": plan.stage_s(s), "bytes": s.num_bytes} for s in plan.stages
        ],
        "total_s": plan.alone_s,
        "at_once": len(ends_s),
        "at_once_s": ends_s,
        "notes": list(plan.notes),
    }


def as_text(engine: ResolvedEngine, plan: StartupPlan, ends_s: list[float]) -> list[str]:
    """Returns the start for a terminal."""
    args, backend = engine.args, engine.backend
    rows = [
        [stage.name, f"{plan.stage_s(stage):,.1f}", _gib(stage.num_bytes)] for stage in plan.stages
    ]
    rows.append(["total", f"{plan.alone_s:,.1f}", ""])
    lines = [
        f"{engine.model.name} on {args.gpus_per_replica} × {engine.gpu.name} "
        f"({parallel_shape(args)}), {backend.name} {backend.version}",
        f"Start: {plan.method}, reading from {plan.storage.name} "
        f"({plan.storage.bandwidth_bytes_s / 1e9:,.2f} GB/s)",
        "",
        table(["Stage", "s", "GiB read"], rows),
    ]
    if len(ends_s) > 1:
        lines += ["", f"{len(ends_s)} at once: {min(ends_s):,.1f} to {max(ends_s):,.1f} s"]
    return lines


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:,.1f}" if num_bytes else ""
