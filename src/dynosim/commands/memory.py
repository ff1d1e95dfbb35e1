"""``dynosim memory``: where the memory of a GPU goes, and how much context is left."""

from __future__ import annotations

from typing import Any

from dynosim.commands.simulate import File
from dynosim.flags import Debug, Json, Quiet, takes_fields_of
from dynosim.hardware_models.memory.plan import MemoryPlan, plan_memory
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.question import read_question
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import located_in_prefill
from dynosim.summary import parallel_shape
from dynosim.terminal import print_json, print_note, table


@takes_fields_of(Deployment=Deployment)
def memory_command(
    file: File = None,
    /,
    *,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
    **flags: Any,
) -> None:
    """Show where GPU memory goes, how many KV-cache tokens remain, and what fits.

    A deployment that does not fit is an answer, not a mistake: the exit code is 0.
    """
    deployment = read_question(file, flags).deployment
    engine = resolve_engine(deployment.decode_pool)
    plans = [(engine, plan_memory(engine))]
    pool = deployment.prefill_pool
    if pool is not None:
        prefill = located_in_prefill(resolve_engine, pool)
        plans.append((prefill, plan_memory(prefill)))
    if json:
        document, *others = [as_json(*planned) for planned in plans]
        print_json(document | ({"prefill": others[0]} if others else {}))
        return
    texts = ["\n".join(as_text(*planned)) for planned in plans]
    print("\n\nPrefill pool\n\n".join(texts))
    for note in dict.fromkeys(note for _, plan in plans for note in plan.notes):
        print_note(f"note: {note}", quiet=quiet)


def as_json(engine: ResolvedEngine, plan: MemoryPlan) -> dict[str, Any]:
    """Returns the plan as plain values; all of ``breakdown_bytes`` is per GPU."""
    args = engine.args
    return {
        "model": engine.model.name,
        "gpu": engine.gpu.key,
        "backend": engine.backend.name,
        "backend_version": engine.backend.version,
        "tensor_parallel_size": args.tensor_parallel_size,
        "pipeline_parallel_size": args.pipeline_parallel_size,
        "data_parallel_size": args.data_parallel_size,
        "gpu_memory_utilization": args.gpu_memory_utilization,
        "max_model_len": plan.max_model_len,
        "kv_cache_dtype": args.kv_cache_dtype,
        "feasible": plan.feasible,
        "reason": plan.reason or None,
        "hint": plan.hint or None,
        "kv_cache_tokens": plan.kv_cache_tokens,
        "max_concurrency": plan.max_concurrency,
        "num_gpu_blocks": plan.num_gpu_blocks,
        "block_size": plan.block_size,
        "kv_bytes_per_token": plan.kv_bytes_per_token,
        "breakdown_bytes": {_key(part): size for part, size in plan.breakdown()},
        "cuda_graphs_deducted": plan.cuda_graphs_deducted,
        "calibrated_version": plan.calibrated_version,
        "notes": list(plan.notes),
    }


def _key(part: str) -> str:
    return part.replace("-", "_").replace(" ", "_").lower()


def as_text(engine: ResolvedEngine, plan: MemoryPlan) -> list[str]:
    """Returns the plan for a terminal, vLLM's own two lines first where the engine starts."""
    args, backend = engine.args, engine.backend
    shape = parallel_shape(args)
    lines = [
        f"{engine.model.name} on {args.gpus_per_replica} × {engine.gpu.name} ({shape}), "
        f"{backend.name} {backend.version}",
        "",
    ]
    if plan.feasible:
        lines += plan.lines()
    else:
        lines += [f"Does not fit: {plan.reason}", *plan.hint.splitlines()]
    lines += ["", _breakdown(plan), "", f"KV cache per token: {plan.kv_bytes_per_token:,} bytes"]
    lines += [f"Constants measured with {backend.name} {plan.calibrated_version}"]
    return lines


def _breakdown(plan: MemoryPlan) -> str:
    rows = [
        [
            part if part in ("device", "budget") else f"  {part}",
            f"{size / 2**30:.2f}",
            f"{size / plan.total_bytes:.1%}",
        ]
        for part, size in plan.breakdown()
    ]
    return table(["Per GPU", "GiB", "of device"], rows)
