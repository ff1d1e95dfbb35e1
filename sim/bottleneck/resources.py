"""How each resource spent a run: at work, held up by others with work at hand, or idle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.timing.op_bounds import BOUNDS, LAUNCH
from dynosim.hardware_models.timing.step_parts import PARTS
from dynosim.sim.bottleneck.attribution import NAMES, Attribution
from dynosim.sim.bottleneck.frontend_use import intake_queue, intake_work_s, late_share
from dynosim.sim.cluster.frontend import Frontend
from dynosim.sim.engine import holds
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.results import ReplicaLog, RunResult


@dataclass(frozen=True, kw_only=True)
class ResourceUse:
    """One kind of resource over a run, all of that kind together.

    ``busy_s`` it was in use, and during ``limiting_s`` of it requests waited for just that;
    ``blocked_s`` it had work at hand and waited for another resource; ``idle_s`` it had none. The
    three (limiting aside) sum to the run's span times the number of such resources. ``mean_use`` is
    the share of its capacity in use, over the whole run.
    """

    name: str
    busy_s: float
    limiting_s: float
    blocked_s: float
    idle_s: float
    mean_use: float


def resource_uses(
    result: RunResult, found: Attribution, limits: EngineLimits, frontend: Frontend
) -> list[ResourceUse]:
    """Returns the use of GPUs, batch slots, step tokens, KV blocks and API servers."""
    span_s = found.times.total_s
    limiting = dict(zip(NAMES, found.bound_s.sum(axis=1).tolist(), strict=True))
    return [
        _gpus(found, span_s),
        _engine_resource(
            result.replicas, span_s, "batch slots", limits.max_num_seqs, "running", limiting
        ),
        _tokens(result.replicas, span_s, limits, limiting),
        _engine_resource(
            result.replicas,
            span_s,
            "KV blocks",
            result.replicas[0].num_blocks,
            "used_blocks",
            limiting,
        ),
        *_api_servers(result, frontend),
        *_links(result),
    ]


def _gpus(found: Attribution, span_s: float) -> ResourceUse:
    """Returns the engines' GPUs: in kernels, or blocked while a step waits for something else."""
    at_work = [i for i in range(len(BOUNDS)) if i != LAUNCH]
    busy_s = float(found.step_s[at_work].sum())
    blocked_s = float(found.step_s.sum()) - busy_s
    limiting_s = float(found.bound_s[: len(PARTS)][at_work].sum())
    return ResourceUse(
        name="GPUs",
        busy_s=busy_s,
        limiting_s=limiting_s,
        blocked_s=blocked_s,
        idle_s=span_s - busy_s - blocked_s,
        mean_use=busy_s / span_s,
    )


def _engine_resource(
    logs: tuple[ReplicaLog, ...],
    span_s: float,
    name: str,
    capacity: int,
    column: str,
    limiting: dict[str, float],
) -> ResourceUse:
    busy_s = used = 0.0
    for log in logs:
        held, duration_s = getattr(log.steps, column), log.steps.durations_s
        busy_s += float(duration_s[held > 0].sum())
        used += float(held @ duration_s)
    return ResourceUse(
        name=name,
        busy_s=busy_s,
        limiting_s=limiting[name],
        blocked_s=0.0,
        idle_s=span_s - busy_s,
        mean_use=used / (capacity * span_s),
    )


def _tokens(
    logs: tuple[ReplicaLog, ...], span_s: float, limits: EngineLimits, limiting: dict[str, float]
) -> ResourceUse:
    """Returns the tokens of steps; a step that leaves some over while requests wait is blocked."""
    busy_s = blocked_s = used = 0.0
    for log in logs:
        steps = log.steps
        duration_s = steps.durations_s
        decodes = np.where(steps.is_pause, 0, steps.num_decode) * limits.query_tokens
        used += float((steps.prefill_tokens + decodes) @ duration_s)
        is_blocked = (steps.blocked > 0) & (steps.held_by != holds.TOKENS)
        blocked_s += float(duration_s[is_blocked].sum())
        busy_s += float(duration_s[~is_blocked].sum())
    return ResourceUse(
        name="token budget",
        busy_s=busy_s,
        limiting_s=limiting["token budget"],
        blocked_s=blocked_s,
        idle_s=span_s - busy_s - blocked_s,
        mean_use=used / (limits.max_num_batched_tokens * span_s),
    )


def _api_servers(result: RunResult, frontend: Frontend) -> list[ResourceUse]:
    """Returns the API servers as what takes requests in and what writes answers, if they cost."""
    done = result.completed
    span_s = float(result.finish_s[done].max() - result.sent_s[done].min())
    uses = []
    taken_in_s = float(intake_work_s(result, frontend).sum())
    if taken_in_s:
        queued_s = min(intake_queue(result, frontend).total_s, taken_in_s)
        uses.append(_server("API servers, requests", taken_in_s, queued_s, span_s))
    if frontend.output_s:
        written_s = late_s = 0.0
        for log in result.replicas:
            written_s += float(frontend.writing_s(log.steps) @ log.steps.counts)
            late_s += float(log.steps.durations_s @ late_share(log))
        span_s *= len(result.replicas)
        uses.append(_server("API servers, answers", written_s, min(late_s, written_s), span_s))
    return uses


def _links(result: RunResult) -> list[ResourceUse]:
    """Returns links to and from the GPUs' memory; who waits for them, waits for KV."""
    done = result.completed
    span_s = float(result.finish_s[done].max() - result.sent_s[done].min())
    uses = []
    hand_overs = result.hand_overs
    pools = [("", result.tiers), ("prefill ", None if hand_overs is None else hand_overs.tiers)]
    named = [(name, c) for name, tiers in pools if tiers is not None for c in tiers.channels]
    for name, channel in named:
        # Copies that are still queued when the last answer is complete are not looked at.
        busy_s = min(channel.busy_s, span_s * channel.count)
        uses.append(_server(name + channel.name, busy_s, 0.0, span_s * channel.count))
    for link in result.hand_overs.links if result.hand_overs is not None else ():
        uses.append(_server(link.name, min(link.busy_s, span_s), 0.0, span_s))
    return uses


def _server(name: str, busy_s: float, limiting_s: float, span_s: float) -> ResourceUse:
    return ResourceUse(
        name=name,
        busy_s=busy_s,
        limiting_s=limiting_s,
        blocked_s=0.0,
        idle_s=span_s - busy_s,
        mean_use=busy_s / span_s,
    )
