"""What one changed field would do to a chosen candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynosim.search.landscape import Landscape
from dynosim.search.outcome import Screen
from dynosim.sim.deployment import Deployment

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Step:
    """One field with another value.

    ``factors`` are the objectives' values over those of the chosen candidate, by metric; empty
    where ``reason`` says why there are none. ``is_simulated`` tells simulations from estimates.
    """

    field: str
    value: Any
    factors: Mapping[str, float]
    is_simulated: bool = False
    reason: str = ""


def sensitivity(deployment: Deployment, known: Landscape, screen: Screen) -> list[Step]:
    """Returns the neighbours of a candidate: an ordered field's next values, any other's all."""
    space = known.space
    rows = {int(index): row for row, index in enumerate(known.indices)}
    at = space.grid.coordinates(space.index_of(deployment))
    own = rows.get(space.index_of(deployment))
    steps = []
    for axis, dimension in enumerate(space.dimensions):
        for value in _others(at[axis], len(dimension), dimension.is_ordered):
            index = space.normal(space.grid.index((*at[:axis], value, *at[axis + 1 :])))
            found = _step(known, own, rows.get(index), screen, space.deployment(index))
            steps.append(Step(dimension.name, dimension.values[value], *found))
    return steps


def neighbour_frame(
    deployment: Deployment, known: Landscape | None, screen: Screen
) -> pd.DataFrame:
    """Returns the neighbours of a candidate, a row each; objectives as relative changes."""
    import pandas as pd

    steps = [] if known is None else sensitivity(deployment, known, screen)
    metrics = [] if known is None else [o.metric for o in known.space.objectives]
    rows = [
        {"field": step.field, "value": step.value}
        | {name: step.factors[name] - 1.0 for name in metrics if name in step.factors}
        | {"is_simulated": step.is_simulated, "reason": step.reason}
        for step in steps
    ]
    return pd.DataFrame(rows, columns=["field", "value", *metrics, "is_simulated", "reason"])


def _others(at: int, length: int, is_ordered: bool) -> list[int]:
    near = (at - 1, at + 1) if is_ordered else range(length)
    return [i for i in near if 0 <= i < length and i != at]


def _step(
    known: Landscape, own: int | None, row: int | None, screen: Screen, other: Deployment
) -> tuple[dict[str, float], bool, str]:
    if row is None or own is None:
        refusal = screen(other)
        if refusal is not None:
            return {}, False, f"{refusal.reason}: {refusal.detail}"
        return {}, False, "not known"
    objectives = known.space.objectives
    if row == own:
        return {o.metric: 1.0 for o in objectives}, True, ""
    moved = known.log_losses[row] - known.log_losses[own]
    signs = np.array([-o.sign for o in objectives])
    factors = np.exp(signs * moved).tolist()
    named = dict(zip((o.metric for o in objectives), factors, strict=True))
    return named, bool(known.is_simulated[row]), ""
