"""``dynosim explain``: what each layer adds from a baseline to a tuned deployment."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dynosim.flags import Debug, Json, Quiet
from dynosim.hardware_models.errors import UserError
from dynosim.outputs import check_writable
from dynosim.pair import Pair, read_pair
from dynosim.planning.ablation import Ablation, Step, ablate, ratio
from dynosim.planning.boundary import PRECISION
from dynosim.planning.goal import UNITS, Objective, Worth, goal_of
from dynosim.slo_flag import SloWords, required_slos
from dynosim.terminal import print_json, table

First = Annotated[
    str,
    Parameter(
        metavar="BASELINE",
        help="YAML file of the baseline; or of both, with sections `baseline:` and `tuned:`.",
    ),
]
Second = Annotated[str | None, Parameter(metavar="TUNED", help="YAML file of the tuned one.")]
Aim = Annotated[
    Objective | None,
    Parameter(help="What is counted; by default users, or what the file's `objective:` says."),
]
Best = Annotated[
    int | None,
    Parameter(
        metavar="GPUS",
        help="Let every step take its best tensor-parallel size up to so many GPUs.",
    ),
]
Order = Annotated[
    tuple[str, ...],
    Parameter(
        consume_multiple=True,
        negative=(),
        show_default=False,
        metavar="LAYER...",
        help="Layers to change first, in this order.",
    ),
]
Plot = Annotated[Path | None, Parameter(metavar="PNG", help="Draw the waterfall.")]


def explain_command(
    baseline: First,
    tuned: Second = None,
    /,
    *,
    objective: Aim = None,
    slo: SloWords = (),
    best_parallelism: Best = None,
    order: Order = (),
    json: Json = False,
    plot: Plot = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Say what each layer adds on the way from a baseline to a tuned deployment."""
    check_writable({"--plot": plot})
    pair = read_pair(baseline, tuned)
    aim = _objective(objective, pair)
    best_parallelism = best_parallelism or pair.about.get("best_parallelism")
    slos = () if aim == "tok-s-per-gpu" else required_slos(slo, pair.slos)
    goal = goal_of(aim, pair.workload, slos, best_parallelism=best_parallelism)
    found = ablate(pair.baseline, pair.tuned, goal, order)
    if not found.baseline.value:
        reason = found.baseline.reason or "no load keeps the limits"
        raise UserError(f"the baseline is worth nothing: {reason}", where=baseline)
    if json:
        print_json(as_json(found, aim))
    else:
        print("\n".join(as_text(found, aim, pair)))
    if plot is not None:
        from dynosim.planning.waterfall import waterfall_figure
        from dynosim.search.figure import save_png

        save_png(waterfall_figure(found, UNITS[aim], _title(found, pair)), plot)


def _objective(given: Objective | None, pair: Pair) -> Objective:
    asked = given or pair.about.get("objective", "users")
    for name in UNITS:
        if asked == name:
            return name
    raise UserError(f"found {asked!r}", where="objective", hint=f"allowed: {', '.join(UNITS)}")


def _title(found: Ablation, pair: Pair) -> str:
    named = str(pair.about.get("title", "")) or f"{short(found.baseline)} → {short(found.tuned)}"
    return f"{named}: ×{found.factor:.3g}"


def short(worth: Worth) -> str:
    """Returns a deployment in a few words."""
    d = worth.deployment
    return f"{d.model.rpartition('/')[2]} on {d.num_gpus} × {d.gpu}, {d.backend}"


def as_text(found: Ablation, aim: Objective, pair: Pair) -> list[str]:
    """Returns one screen: the steps, their interaction, and what is narrowest after each."""
    rows = [
        ["baseline", "", "", f"{found.baseline.value:,.4g}", "", _gpus(found.baseline)],
        *(_row(found, number) for number in range(len(found.steps))),
    ]
    header = ["Layer", "alone", "factor", "together", "factor", "GPUs"]
    lines = [_title(found, pair), UNITS[aim], "", table(header, rows), ""]
    lines.append(f"All together  ×{found.factor:.3g}")
    if len(found.steps) > 1:
        lines.append(f"Interaction   {_interaction(found)}")
    lines.append(f"Narrowest     at first {_narrowest(found.narrowest_first, found.first_gains)}")
    lines += [
        f"              after {step.layer}: {_narrowest(step.narrowest, step.next_gains)}"
        for step in found.steps[:-1]
    ]
    if aim != "tok-s-per-gpu":
        lines.append(f"Precision     loads are found to {PRECISION:.0%} or one request")
    lines += ["", *_changes(found)]
    published = published_text(pair)
    return lines + ([f"Published     {published}"] if published else [])


def published_text(pair: Pair) -> str:
    """Returns the factor that was claimed of a pair, or its range; empty where none was."""
    published = pair.about.get("published", [])
    figures = published if isinstance(published, list) else [published]
    return " to ".join(f"×{figure:g}" for figure in figures)


def _row(found: Ablation, number: int) -> list[str]:
    step = found.steps[number]
    before = found.steps[number - 1].together if number else found.baseline
    return [
        step.layer,
        *_worth(step.alone, found.baseline),
        *_worth(step.together, before),
        _gpus(step.together),
    ]


def _worth(after: Worth, before: Worth) -> tuple[str, str]:
    if after.reason:
        return "cannot run", ""
    return f"{after.value:,.4g}", f"×{ratio(after, before):.3g}" if before.value else ""


def _gpus(worth: Worth) -> str:
    return f"{worth.deployment.num_gpus}"


def _interaction(found: Ablation) -> str:
    if math.isnan(found.interaction):
        return "a layer cannot run alone, so there is no product of single factors"
    words = "they help each other" if found.interaction > 1 else "they widen the same place"
    return f"×{found.interaction:.3g} of the product of single factors: {words}"


def _narrowest(layer: str, gains: Any) -> str:
    return f"{layer} (×{gains[layer]:.3g})" if layer else "no remaining layer helps by itself"


def _changes(found: Ablation) -> list[str]:
    lines = []
    for step in found.steps:
        fields = ", ".join(f"{name}: {value}" for name, value in step.fields.items())
        lines.append(f"{step.layer}: {fields}")
        if step.alone.reason:
            lines.append(f"  cannot run alone: {step.alone.reason[:150]}")
    return lines


def as_json(found: Ablation, aim: Objective) -> dict[str, Any]:
    """Returns the ablation as plain values; factors are null where there is none."""
    return {
        "objective": aim,
        "unit": UNITS[aim],
        "baseline": _worth_json(found.baseline),
        "tuned": _worth_json(found.tuned),
        "factor": _finite(found.factor),
        "interaction": _finite(found.interaction),
        "narrowest_first": found.narrowest_first,
        "steps": [_step_json(found, step) for step in found.steps],
    }


def _step_json(found: Ablation, step: Step) -> dict[str, Any]:
    return {
        "layer": step.layer,
        "fields": dict(step.fields),
        "alone": _worth_json(step.alone),
        "alone_factor": _finite(ratio(step.alone, found.baseline)),
        "together": _worth_json(step.together),
        "next_gains": {name: _finite(gain) for name, gain in step.next_gains.items()},
        "narrowest": step.narrowest or None,
    }


def _worth_json(worth: Worth) -> dict[str, Any]:
    return {
        "value": worth.value,
        "reason": worth.reason or None,
        "deployment": asdict(worth.deployment),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
