"""A run, or one of its trials, explained in lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.search.dominance import dominator
from dynosim.search.metric import METRICS
from dynosim.search.outcome import Screen
from dynosim.search.result import SearchResult
from dynosim.search.sensitivity import Step, sensitivity
from dynosim.search.short_list import WITHIN, overrides
from dynosim.search.trial import Trial

LEAST_SHARE = 0.01
"""Fields that decide less of an objective than this are not named."""


def overview(result: SearchResult) -> list[str]:
    """Returns what decided the objectives, and how the search converged."""
    return [*importance_lines(result), *convergence_lines(result)]


def importance_lines(result: SearchResult) -> Iterator[str]:
    """Yields, an objective a line, which fields its variance over all candidates comes from."""
    for item in result.importances:
        parts = [f"{name} {share:.0%}" for name, share in item.shares.items()]
        kept = [p for p, share in zip(parts, item.shares.values(), strict=True)
                if share >= LEAST_SHARE]  # fmt: skip
        yield f"what decides {METRICS[item.metric].label}: {', '.join(kept)}"


def convergence_lines(result: SearchResult) -> Iterator[str]:
    """Yields when the hypervolume reached 99 % of what it came to, and when it last grew."""
    found = result.convergence
    if not found.gains:
        return
    last = found.gains[-1]
    yield (
        f"hypervolume {last.hypervolume:.4g}: 99 % of it after {found.after(0.99)} simulations, "
        f"last gain at {last.simulations} of {found.simulations}"
    )


def trial_of(result: SearchResult, number: int) -> Trial:
    """Returns the trial of a number; UserError where there is none."""
    trial = next((t for t in result.trials if t.number == number), None)
    if trial is None:
        raise UserError(
            f"no trial {number}", where="trial", hint=f"allowed: 0 to {len(result.trials) - 1}"
        )
    return trial


def explain_trial(result: SearchResult, number: int, screen: Screen) -> list[str]:
    """Returns one trial's configuration, standing and neighbours; UserError for an unknown one."""
    trial = trial_of(result, number)
    return [
        f"trial {number}: {_configuration(result, trial)}",
        f"  {_figures(result, trial.metrics)}" if trial.is_simulated else "  not simulated",
        *_standing(result, trial),
        *_neighbours(result, trial, screen),
    ]


def _configuration(result: SearchResult, trial: Trial) -> str:
    d = trial.deployment
    shape = f"{d.replicas} × TP{d.tensor_parallel_size}"
    shape += f" PP{d.pipeline_parallel_size}" if d.pipeline_parallel_size > 1 else ""
    shape += f" DP{d.data_parallel_size}" if d.data_parallel_size > 1 else ""
    set_here = overrides(d, result.spelled)
    extra = ", ".join(f"{name}={value}" for name, value in set_here.items()) or "all defaults"
    return f"{d.model} on {d.num_gpus} × {d.gpu}, {d.backend}, {shape}; {extra}"


def _figures(result: SearchResult, metrics: Mapping[str, float]) -> str:
    names = [o.metric for o in result.space.objectives]
    names += [limit.metric for limit in result.space.limits if limit.metric not in names]
    return ", ".join(
        f"{METRICS[name].label} {metrics[name]:.4g} {METRICS[name].unit}".strip()
        for name in names
        if name in metrics
    )


def _standing(result: SearchResult, trial: Trial) -> Iterator[str]:
    if trial.reason is not None:
        yield f"infeasible, {trial.reason}: {trial.detail}"
        return
    chance = result.chances.get(trial.number)
    if chance is not None:
        yield (
            f"truly non-dominated with probability {chance.alone:.0%}, it or one within "
            f"{WITHIN:.0%} of it {chance.or_near:.0%}, by the errors of predictions"
        )
    if trial in result.frontier:
        marks = [f"the {n}" for n in ("knee", "cheapest") if getattr(result, n) is trial]
        yield ", ".join(["on the frontier", *marks])
        share = result.shares_best.get(trial.number)
        if share is not None:
            yield f"non-dominated in {share:.0%} of the replicates"
        return
    found = dominator(trial, result.frontier, result.space.objectives)
    if found is None:
        return
    gains = ", ".join(
        f"{METRICS[name].label} {gain:.1%} better" if gain else f"{METRICS[name].label} equal"
        for name, gain in found.gains.items()
    )
    yield f"dominated by trial {found.trial.number}: {gains}"
    yield f"  which has {_changes(found.changes)}"


def _changes(changes: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name} {_value(two)} instead of {_value(one)}"
                     for name, (one, two) in changes.items())  # fmt: skip


def _value(value: object) -> str:
    return "default" if value is None else str(value)


def _neighbours(result: SearchResult, trial: Trial, screen: Screen) -> Iterator[str]:
    known = result.landscape
    steps = [] if known is None else sensitivity(trial.deployment, known, screen)
    if steps:
        yield "one field changed (~ estimated):"
    width = max((len(_step_name(step)) for step in steps), default=0)
    for step in steps:
        yield f"  {_step_name(step):<{width}}  {_effect(step)}"


def _step_name(step: Step) -> str:
    return f"{step.field} {_value(step.value)}"


def _effect(step: Step) -> str:
    if not step.factors:
        return step.reason
    sign = "" if step.is_simulated else "~"
    return ", ".join(
        f"{METRICS[name].label} {sign}{factor - 1:+.1%}" for name, factor in step.factors.items()
    )
