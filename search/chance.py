"""How likely each point of the frontier is truly non-dominated, since predictions err.

What a measurement would give is drawn for every trial that could matter: its prediction times an
error from the class of predictions like it (:mod:`dynosim.accuracy.intervals`). Trials of one
model on one GPU under one backend share a part of their errors, which cannot change their order,
and the metrics of one trial err together (:mod:`dynosim.accuracy.shared_errors`). A point's chance
is the share of draws in which no other trial is better than it. Limits are taken to be kept.

Many trials may be predicted alike, and which of them wins is then up to errors of their own. What
a reader of the short list wants to know is whether one of them does: the chance of a trial ``or``
of one that is predicted within WITHIN of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynosim.accuracy.error_classes import FIELDS
from dynosim.accuracy.intervals import BASES, ErrorModel, read_model
from dynosim.accuracy.shared_errors import Z_HIGH, SharedErrors, read_shared_errors
from dynosim.hardware_models.arrays import BoolArray, FloatArray, IntArray
from dynosim.search.frontier import losses
from dynosim.search.likeness import EXACT, class_fields, error_of
from dynosim.search.objective import Objective
from dynosim.search.short_list import WITHIN
from dynosim.search.trial import Trial

DRAWS = 2000
"""A chance of one half is then told to 1 % (one standard error)."""

MOST_RIVALS = 400
"""Trials beside the frontier that are drawn, the most dangerous of all."""

HARMLESS = 3.5
"""Standard deviations by which the other is better in one objective of a pair that cannot turn."""

_ANYTHING = dict.fromkeys(FIELDS, "*") | {"basis": BASES[-1]}
"""Falls into no class but that of all measurements together."""


class Chance(NamedTuple):
    """The probability that a trial is truly non-dominated, and that it or one like it is."""

    alone: float
    or_near: float


@dataclass(frozen=True, kw_only=True, eq=False)
class _Predicted:
    """Logarithmic losses of trials and how far they may be off; arrays (trials, objectives).

    An error of score z is ``median`` + z · (``up`` or ``down``), in logarithms of the loss.
    """

    loss: FloatArray
    median: FloatArray
    up: FloatArray
    down: FloatArray
    sign: FloatArray
    stacks: IntArray
    is_known: BoolArray

    def only(self, rows: IntArray) -> _Predicted:
        stacks = np.unique(self.stacks[rows], return_inverse=True)[1]
        return _Predicted(
            loss=self.loss[rows],
            median=self.median[rows],
            up=self.up[rows],
            down=self.down[rows],
            sign=self.sign,
            stacks=np.asarray(stacks, dtype=np.int64),
            is_known=self.is_known[rows],
        )


def chances(
    front: Sequence[Trial],
    trials: Sequence[Trial],
    objectives: Sequence[Objective],
    *,
    is_open: bool,
    seed: int,
    model: ErrorModel | None = None,
    shared: SharedErrors | None = None,
) -> dict[int, Chance]:
    """Returns by number how likely a trial is truly non-dominated.

    Of the points of ``front`` and of those feasible ``trials`` that may be better than one of them;
    without those that nothing was measured like. Empty where an objective's errors were never
    measured. ``model`` and ``shared`` are by default the shipped ones.
    """
    model, shared = model or read_model(), shared or read_shared_errors()
    laws = [error_of(o.metric, is_open=is_open) for o in objectives]
    if not front or any(law is None or law[0] not in (EXACT, *shared.quantities) for law in laws):
        return {}
    known = [law for law in laws if law is not None]
    numbers = {t.number for t in front}
    ordered = [*front, *(t for t in trials if t.is_feasible and t.number not in numbers)]
    values = losses(ordered, objectives)
    if not (np.isfinite(values).all() and (values != 0.0).all()):
        return {}
    predicted = _predicted(ordered, values, objectives, known, model)
    if predicted is None:
        return {}
    rows = _dangerous(predicted, len(front), known, shared)
    drawn = predicted.only(rows)
    alone, or_near = _kept(drawn, known, shared, seed)
    pairs = map(Chance, alone.tolist(), or_near.tolist())
    triples = zip(rows.tolist(), pairs, drawn.is_known.tolist(), strict=True)
    return {ordered[row].number: chance for row, chance, is_known in triples if is_known}


def _predicted(
    trials: Sequence[Trial],
    values: FloatArray,
    objectives: Sequence[Objective],
    laws: Sequence[tuple[str, float]],
    model: ErrorModel,
) -> _Predicted | None:
    """Returns the trials as predicted; None where an objective has no class of errors at all."""
    fields = [class_fields(t) for t in trials]
    ends = np.zeros((len(trials), len(laws), 3))
    memory: dict[tuple[str, ...], tuple[float, float, float]] = {}
    try:
        for row, own in enumerate(fields):
            for column, (quantity, _) in enumerate(laws):
                if quantity != EXACT:
                    ends[row, column] = _ends(model, quantity, own or _ANYTHING, memory)
    except KeyError:
        return None
    # Losses are negative where more is better: their logarithm then rises as the value falls.
    signs = np.array([-o.sign for o in objectives])
    power = signs * np.array([p for _, p in laws])
    keys = [(t.deployment.model, t.deployment.gpu, t.deployment.backend) for t in trials]
    numbers = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return _Predicted(
        loss=signs * np.log(np.abs(values)),
        median=power * ends[:, :, 1],
        up=ends[:, :, 2] - ends[:, :, 1],
        down=ends[:, :, 1] - ends[:, :, 0],
        sign=power,
        stacks=np.array([numbers[key] for key in keys], dtype=np.int64),
        is_known=np.array([own is not None for own in fields]),
    )


def _ends(
    model: ErrorModel,
    quantity: str,
    fields: dict[str, str],
    memory: dict[tuple[str, ...], tuple[float, float, float]],
) -> tuple[float, float, float]:
    """Returns ln(measured / predicted) at a score of -1, in the median, and at +1."""
    key = (quantity, *fields.values())
    if key not in memory:
        like, low, high = model.log_bounds(quantity, fields)
        middle = like.median
        memory[key] = middle + (low - middle) / Z_HIGH, middle, middle + (high - middle) / Z_HIGH
    return memory[key]


def _dangerous(
    predicted: _Predicted, size: int, laws: Sequence[tuple[str, float]], shared: SharedErrors
) -> IntArray:
    """Returns the rows of the frontier's ``size`` points, then of those that may dominate one."""
    share = np.array([1.0 if q == EXACT else shared.share(q) for q, _ in laws])
    mean = predicted.loss + predicted.median
    width = np.maximum(predicted.up, predicted.down)
    gap = np.full(len(mean), np.inf)
    for point in range(size):
        is_same = predicted.stacks == predicted.stacks[point]
        both = np.hypot(width, width[point])
        own = np.sqrt(1.0 - share) * both + np.sqrt(share) * np.abs(width - width[point])
        spread = np.where(is_same[:, None], own, both)
        behind = mean - mean[point]
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = np.where(behind > 0.0, behind / spread, 0.0)
        # What has the very same figures is the same answer, not a rival.
        is_twin = (predicted.loss == predicted.loss[point]).all(axis=1)
        gap = np.minimum(gap, np.where(is_twin, np.inf, scores.max(axis=1)))
    order = np.argsort(gap[size:], kind="stable") + size
    able = order[gap[order] <= HARMLESS][:MOST_RIVALS]
    return np.concatenate([np.arange(size), np.sort(able)])


def _kept(
    predicted: _Predicted, laws: Sequence[tuple[str, float]], shared: SharedErrors, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Returns in which share of the draws each row is non-dominated, and it or a row near it."""
    import moocore

    draw = np.random.default_rng([seed, 6])
    uncertain = [i for i, (quantity, _) in enumerate(laws) if quantity != EXACT]
    names = [laws[i][0] for i in uncertain]
    near = _near(predicted.loss)
    alone, or_near = np.zeros(len(near)), np.zeros(len(near))
    losses_drawn = predicted.loss + predicted.median
    for _ in range(DRAWS // CHUNK):
        batch = np.repeat(losses_drawn[None], CHUNK, axis=0)
        if names:
            score = shared.scores(predicted.stacks, names, CHUNK, draw)
            width = np.where(score > 0, predicted.up[:, uncertain], predicted.down[:, uncertain])
            batch[:, :, uncertain] += predicted.sign[uncertain] * score * width
        kept = np.array([moocore.is_nondominated(one, keep_weakly=True) for one in batch])
        alone += kept.sum(axis=0)
        or_near += (kept.astype(np.float32) @ near > 0.0).sum(axis=0)
    return alone / DRAWS, or_near / DRAWS


def _near(loss: FloatArray) -> NDArray[np.float32]:
    """Returns 1 for pairs of rows within WITHIN of each other in every objective, else 0."""
    apart = np.abs(loss[:, None, :] - loss[None, :, :]).max(axis=2)
    # A rounding error must not tell trials with the same figures, or just WITHIN, apart.
    return np.asarray(apart <= np.log1p(WITHIN) + 1e-9, dtype=np.float32)


CHUNK = 100
"""Draws made at once: memory does not grow with their number."""
