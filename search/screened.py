"""Estimate everything, simulate what may matter: the proposer of spaces that can be estimated.

Every candidate that can run has an estimate (:mod:`dynosim.search.estimate`). Simulations are
spent where estimate, what simulations have taught of its errors
(:class:`~dynosim.search.correction.Correction`) and the doubt that is left promise to move the
frontier most. docs/search.md has the measured case for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.search.correction import Correction
from dynosim.search.grid import Grid
from dynosim.search.improvement import dominated, most_promising
from dynosim.search.objective import Objective
from dynosim.search.screening import Judge, Screening
from dynosim.search.trial import Trial

BATCH = 16
"""Candidates chosen at once, as many as the owner's generation has."""

DOUBTS = (0.0, 1.0)
"""Standard deviations by which predictions are taken to be too bad: half of a batch exploits what
is known, half looks where little is. Alone, the first stops early and the second is slow."""

MORE_DOUBTS = (2.0, 4.0)
"""By how many more where those do not fill a batch."""

SLACK = 0.05
"""Predicted excess over a constraint, in logarithms, up to which a candidate may still keep it."""

MOST_DOUBTFUL = 4096
"""Candidates among which the least known are sought."""

JITTER = 0.1
"""Spread, in logarithms, of how much each candidate's own doubt counts; seeds differ in it."""

KEPT, MISSED = -0.3, 0.3
"""What a kept or missed constraint teaches about its margin, in logarithms; also the bound on
estimated margins, since by how much an overloaded queue overflows is a matter of the run's length.
"""


class ScreenedProposer:
    """Proposes what promises most, by estimate and experience.

    ``candidates`` are flat indices of ``grid``. ``losses`` are the estimates of the objectives,
    shape (candidates, objectives), in logarithms, less is better; ``margins``, shape
    (candidates,), the largest estimated relative excess over a constraint, in logarithms.
    Candidates whose estimates are not finite come last, in the grid's order. ``judge`` estimates
    candidates that are not among these: the neighbours of what proves best then join them.
    """

    def __init__(
        self,
        grid: Grid,
        candidates: Sequence[int] | IntArray,
        losses: FloatArray,
        margins: FloatArray,
        objectives: tuple[Objective, ...],
        seed: int,
        judge: Judge | None = None,
    ) -> None:
        is_estimated = np.isfinite(losses).all(axis=1) & np.isfinite(margins)
        known = np.flatnonzero(is_estimated)
        every = np.asarray(candidates, dtype=np.int64)
        self._index: IntArray = every[known]
        self._unestimated: list[int] = every[~is_estimated].tolist()
        self._losses = losses[known]
        self._margins = np.clip(margins[known], KEPT, MISSED)
        self._objectives, self._grid, self._judge = objectives, grid, judge
        self._row = {index: row for row, index in enumerate(self._index.tolist())}
        self._errors = Correction(grid, self._index, losses.shape[1])
        self._margin_errors = Correction(grid, self._index, 1)
        self._left = np.ones(len(known), dtype=bool)
        self._queue = self._one_of_each(grid)[::-1]
        self._pending: dict[int, FloatArray] = {}
        self._front: list[FloatArray] = []
        self._front_index: list[int] = []
        self._surrounded: set[int] = set()
        self._random = np.random.default_rng([seed, 3])
        self._doubt = self._drawn_doubt(self._losses)

    def propose(self) -> int | None:
        """Returns the next candidate; None when every one has been proposed."""
        if not self._queue:
            self._queue = self._choose()[::-1]
        if self._queue:
            row = self._queue.pop()
            return int(self._index[row])
        return self._unestimated.pop(0) if self._unestimated else None

    def tell(self, index: int, trial: Trial) -> None:
        """Learns how far the estimate was from what a finished trial gave."""
        row = self._row.get(index)
        if row is None:
            return
        self._pending.pop(row, None)
        found = _log_losses(trial, self._objectives)
        kept = KEPT if trial.is_feasible else MISSED
        self._margin_errors.learn(row, np.array([kept - self._margins[row]]))
        if np.isfinite(found).all():
            self._errors.learn(row, found - self._losses[row])
            if trial.is_feasible:
                self._front.append(found)
                self._front_index.append(index)

    def _drawn_doubt(self, losses: FloatArray) -> FloatArray:
        return np.asarray(np.exp(self._random.normal(0.0, JITTER, losses.shape)))

    def _surround(self, judge: Judge) -> None:
        """Has the neighbours of the simulated frontier join the candidates."""
        import moocore

        if not self._front:
            return
        is_best = moocore.is_nondominated(np.array(self._front))
        best = [i for i, kept in zip(self._front_index, is_best, strict=True) if kept]
        new = [i for i in best if i not in self._surrounded]
        self._surrounded |= set(new)
        near = dict.fromkeys(i for point in new for i in self._grid.neighbours(point))
        found = judge(list(near)) if near else None
        if found is not None:
            self._join(found)

    def _join(self, found: Screening) -> None:
        known = np.isfinite(found.losses).all(axis=1) & np.isfinite(found.margins)
        index, losses = np.asarray(found.candidates, dtype=np.int64)[known], found.losses[known]
        begin = len(self._index)
        self._row |= {number: begin + row for row, number in enumerate(index.tolist())}
        self._index = np.concatenate((self._index, index))
        self._losses = np.concatenate((self._losses, losses))
        margins = np.clip(found.margins[known], KEPT, MISSED)
        self._margins = np.concatenate((self._margins, margins))
        self._doubt = np.concatenate((self._doubt, self._drawn_doubt(losses)))
        self._left = np.concatenate((self._left, np.ones(len(index), dtype=bool)))
        for errors in (self._errors, self._margin_errors):
            errors.extend(self._grid, index)

    def _one_of_each(self, grid: Grid) -> list[int]:
        """Returns the most promising row of every category: what is never tried teaches nothing."""
        at = grid.coordinates_of(self._index)
        chosen: list[int] = []
        for axis, is_ordered in enumerate(grid.is_ordered):
            for value in [] if is_ordered else np.unique(at[:, axis]):
                rows = np.flatnonzero((at[:, axis] == value) & (self._margins <= 0.0))
                if not len(rows) or (at[chosen, axis] == value).any():
                    continue
                chosen += rows[_picks(self._losses[rows], self._losses[:0], 1)].tolist()
        self._left[chosen] = False
        return chosen

    def _choose(self) -> list[int]:
        """Returns the rows of the next batch; what runs meanwhile counts as it is predicted."""
        if self._judge is not None:
            self._surround(self._judge)
        width = self._losses.shape[1]
        known = np.array([*self._front, *self._pending.values()]).reshape(-1, width)
        rows = self._promising(known)
        mean, deviation = self._errors.predict(rows)
        margin_mean, margin_deviation = self._margin_errors.predict(rows)
        predicted = self._losses[rows] + mean
        margin = self._margins[rows] + margin_mean[:, 0]
        chosen: list[int] = []
        left = np.ones(len(rows), dtype=bool)
        for doubt in (*DOUBTS, *MORE_DOUBTS):
            if len(chosen) >= BATCH and doubt not in DOUBTS:
                break
            hoped = predicted - doubt * deviation * self._doubt[rows]
            able = np.flatnonzero(left & (margin - doubt * margin_deviation[:, 0] <= SLACK))
            if len(able):
                picks = able[_picks(hoped[able], known, BATCH // len(DOUBTS))]
                chosen += picks.tolist()
                left[picks] = False
                known = np.vstack((known, hoped[picks]))
        for pick in chosen:
            if margin[pick] <= 0.0:
                self._pending[int(rows[pick])] = predicted[pick]
        found = [int(rows[pick]) for pick in chosen] or self._most_doubtful()
        self._left[found] = False
        return found

    def _promising(self, known: FloatArray) -> IntArray:
        """Returns the rows left that could be on the frontier, were their errors favourable.

        The others are not looked at: predictions cost more than all else here.
        """
        best = self._losses + self._errors.most_favourable()
        margin = self._margins + self._margin_errors.most_favourable()[0]
        rows = np.flatnonzero(self._left & (margin <= SLACK))
        return np.asarray(rows[~dominated(best[rows], known)])

    def _most_doubtful(self) -> list[int]:
        """Returns those left of which least is known: nothing promises to move the frontier."""
        rows = np.flatnonzero(self._left)
        rows = rows[:: max(1, len(rows) // MOST_DOUBTFUL)]
        _, deviation = self._errors.predict(rows)
        order = np.lexsort((rows, -deviation.sum(axis=1)))
        return [int(row) for row in rows[order][:BATCH]]


def _picks(hoped: FloatArray, known: FloatArray, count: int) -> list[int]:
    """Returns the most promising rows; the ends of the frontier that is hoped for count, too."""
    import moocore

    both = np.vstack((known, hoped))
    ends = both[moocore.is_nondominated(both)].max(axis=0)
    return most_promising(hoped, known, ends + 0.1, count)


def _log_losses(trial: Trial, objectives: Sequence[Objective]) -> FloatArray:
    """Returns the logarithms of the objectives, less is better; NaN where one is not positive."""
    values = np.array(trial.values(objectives))
    signs = np.array([-o.sign for o in objectives])
    return np.asarray(signs * np.log(np.where(values > 0.0, values, np.nan)))
