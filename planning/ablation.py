"""From a baseline to a tuned deployment, a layer at a time: what each is worth, and what limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan, prod
from typing import TYPE_CHECKING, Any

from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.planning.goal import UNITS, Goal, Objective, Worth
from dynosim.planning.layer import FIELDS, changes, with_changes
from dynosim.sim.deployment import Deployment

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Step:
    """One layer's change: ``alone`` on the baseline, and ``together`` with all before it.

    ``next_gains`` are layer -> factor that each remaining layer would bring by itself after this
    step; ``narrowest`` is the one that brings most (empty: none is left, or none helps).
    """

    layer: str
    fields: Mapping[str, Any]
    alone: Worth
    together: Worth
    next_gains: Mapping[str, float]

    @property
    def narrowest(self) -> str:
        """The remaining layer whose change helps most from here."""
        best = max(self.next_gains, key=lambda layer: self.next_gains[layer], default="")
        return best if best and self.next_gains[best] > 1.0 else ""


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """The baseline, the steps in order; the last step's ``together`` is the tuned deployment."""

    baseline: Worth
    first_gains: Mapping[str, float]
    steps: tuple[Step, ...]

    @property
    def tuned(self) -> Worth:
        """All layers together."""
        return self.steps[-1].together

    @property
    def factor(self) -> float:
        """Tuned over baseline; NaN where the baseline is worth nothing."""
        return ratio(self.tuned, self.baseline)

    @property
    def interaction(self) -> float:
        """What the layers make of each other: all together over the product of each alone.

        Above 1 they help each other, below 1 they widen the same place. NaN where a layer cannot
        run alone.
        """
        alone = [ratio(step.alone, self.baseline) for step in self.steps]
        product = prod(alone)
        return self.factor / product if product else nan

    @property
    def narrowest_first(self) -> str:
        """The layer whose change alone helps the baseline most."""
        return max(self.first_gains, key=lambda layer: self.first_gains[layer])

    def to_frame(self) -> pd.DataFrame:
        """Returns the baseline and the steps, a row each.

        ``alone`` and ``together`` are worths, the factors beside them over the baseline and over
        the row before; NaN where a layer cannot run. ``narrowest`` is the layer that helps next.
        """
        import pandas as pd

        first = {"layer": "baseline", "changed": "", "together": self.baseline.value}
        first |= {"gpus": self.baseline.deployment.num_gpus, "narrowest": self.narrowest_first}
        befores = [self.baseline, *(step.together for step in self.steps)]
        rows = [first, *map(self._row, self.steps, befores)]
        names = ("layer", "changed", "alone", "alone_factor", "together", "factor", "gpus")
        return pd.DataFrame(rows, columns=[*names, "narrowest"])

    def _row(self, step: Step, before: Worth) -> dict[str, Any]:
        return {
            "layer": step.layer,
            "changed": ", ".join(f"{name}: {value}" for name, value in step.fields.items()),
            "alone": nan if step.alone.reason else step.alone.value,
            "alone_factor": nan if step.alone.reason else ratio(step.alone, self.baseline),
            "together": nan if step.together.reason else step.together.value,
            "factor": nan if step.together.reason else ratio(step.together, before),
            "gpus": step.together.deployment.num_gpus,
            "narrowest": step.narrowest,
        }

    def plot(self, objective: Objective, title: str = "") -> Figure:
        """Returns the waterfall; ``objective`` is what the layers were valued by."""
        from dynosim.planning.waterfall import waterfall_figure

        return waterfall_figure(self, UNITS[objective], title)


def ratio(after: Worth, before: Worth) -> float:
    """Returns how many times more ``after`` is worth; NaN where ``before`` is worth nothing."""
    return after.value / before.value if before.value else nan


def ablate(
    baseline: Deployment, tuned: Deployment, goal: Goal, order: Sequence[str] = ()
) -> Ablation:
    """Returns the ablation; layers come in ``order``, those not named after them, as in FIELDS.

    UserError where the two deployments are equal, or for an unknown layer.
    """
    changed = changes(baseline, tuned)
    if not changed:
        raise UserError("the two deployments are equal", hint="nothing to explain")
    for name in order:
        if name not in FIELDS:
            raise unknown_name("layer", name, FIELDS, where="--order")
    layers = [n for n in order if n in changed] + [n for n in changed if n not in order]
    start = goal(baseline)
    steps: list[Step] = []
    for number, layer in enumerate(layers):
        done = [changed[name] for name in layers[: number + 1]]
        here = with_changes(baseline, *done)
        steps.append(
            Step(
                layer=layer,
                fields=changed[layer],
                alone=goal(with_changes(baseline, changed[layer])),
                together=goal(here),
                next_gains=_gains(here, {n: changed[n] for n in layers[number + 1 :]}, goal),
            )
        )
    return Ablation(baseline=start, first_gains=_gains(baseline, changed, goal), steps=tuple(steps))


def _gains(
    here: Deployment, remaining: Mapping[str, Mapping[str, Any]], goal: Goal
) -> dict[str, float]:
    """Returns what each remaining layer would bring from here by itself."""
    now = goal(here)
    return {name: ratio(goal(with_changes(here, f)), now) for name, f in remaining.items()}
