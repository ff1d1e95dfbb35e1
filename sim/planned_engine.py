"""One engine of a pool: resolved, with its memory plan and its step times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.memory.plan import MemoryPlan, plan_memory
from dynosim.hardware_models.memory.rules import blamed_option
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.sim.deployment import OF_PREFILL_POOL, Deployment
from dynosim.sim.workload.columns import Workload

if TYPE_CHECKING:
    from dynosim.hardware_models.timing.data_parallel import DataParallelTimer

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PlannedEngine:
    """One engine of a pool: resolved, with its memory plan and its step times."""

    engine: ResolvedEngine
    memory: MemoryPlan
    timer: StepTimer | DataParallelTimer


def plan_pool(
    pool: Deployment, workload: Workload, overheads: Mapping[str, float] | None = None
) -> tuple[PlannedEngine, tuple[str, ...]]:
    """Returns the engines of one pool, and warnings; UserError where they cannot run."""
    engine, warnings = resolve_for(pool, workload)
    if overheads:
        engine = replace(engine, backend=engine.backend.with_figures(overheads))
    memory = plan_memory(engine)
    if not memory.feasible:
        where = blamed_option(engine)
        raise UserError(memory.reason or "does not fit", where=where, hint=memory.hint or "")
    return PlannedEngine(engine=engine, memory=memory, timer=compile_timer(engine)), warnings


def located_in_prefill(look_up: Callable[[Deployment], T], pool: Deployment) -> T:
    """Returns what ``look_up`` says of a prefill pool, its errors located by that pool's keys."""
    try:
        return look_up(pool)
    except UserError as error:
        where, _, rest = error.where.partition(":")
        if where in OF_PREFILL_POOL:
            where = f"prefill_{where}"
        else:
            where = f"prefill pool: {where}" if where else "prefill pool"
        error = UserError(error.message, where=where + (rest and f":{rest}"), hint=error.hint)
        raise error from None


def resolve_for(
    deployment: Deployment, workload: Workload
) -> tuple[ResolvedEngine, tuple[str, ...]]:
    """Returns the engine with every default filled in, and warnings.

    Without an explicit ``max_model_len`` the engine is given room for the workload's longest
    request, even beyond what the model declares (as rope scaling would): a plan for a trace should
    answer for all of it. With one, longer requests are refused, as the real engine does.
    """
    engine = resolve_engine(deployment)
    if deployment.max_model_len is not None or not len(workload):
        return engine, ()
    longest = int((workload.input_tokens + workload.output_tokens).max())
    declared = engine.args.max_model_len
    if declared is not None and longest <= declared:
        return engine, ()
    warning = (
        f"the longest request has {longest:,} tokens, {engine.model.name} declares {declared:,}: "
        f"simulated as if --max-model-len {longest} were allowed"
    )
    return replace(engine, args=replace(engine.args, max_model_len=longest)), (warning,)


def compile_timer(engine: ResolvedEngine) -> StepTimer | DataParallelTimer:
    """Returns the timer of one replica: of an engine, or of ranks that step together."""
    if engine.ranks_in_step > 1:
        from dynosim.hardware_models.timing.data_parallel import DataParallelTimer

        return DataParallelTimer.compile(engine)
    return StepTimer.compile(engine)
