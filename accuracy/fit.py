"""Fits the overheads of backends to measured cases, and holds the result against held-out groups.

The logarithms of a few overheads, bounded and drawn to their priors, minimise the soft-L1 loss of
the logarithms of predicted / measured, each group counting alike. A round linearises predictions at
the best overheads so far by finite differences, solves that problem within bounds, and tries the
solution and points on the way to it. How predictions react is told from cases cut short
(:mod:`.shortened`), how far they are off from whole ones.

For each fold the last linear problem is solved again without the fold's groups, and these are
simulated where the difference leads. Overheads are kept only where they lower the loss of held-out
groups and make none of its quantities much worse; else those of the front-end alone, if they do;
else none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dynosim.accuracy.calibration_class import CalibrationClass
from dynosim.accuracy.kinds import quantity_of
from dynosim.accuracy.linearised import Linearised, Prior, minimise, robust_cost
from dynosim.accuracy.parameters import fitted_metrics, parameters_of
from dynosim.accuracy.predictions import Figures, Predictions, Question, log_error
from dynosim.accuracy.run import Outcome
from dynosim.accuracy.shortened import shortened
from dynosim.hardware_models.arrays import FloatArray, IntArray

ROUNDS = 2
STRIDES = (1.0, 0.5, 0.2)
"""Shares of the way to the linear problem's solution that are tried."""
DIFFERENCE = 0.15
"""Step of finite differences, in logarithms: wide enough to look across small kinks."""
RADIUS = 1.5
"""How far one round may move a logarithm."""
GROUP_WEIGHT = 8.0
"""Measurements that a group counts for, however many it has: what priors are weighed against."""
LOST = 100.0
"""Standard errors that a case counts for which overheads made impossible to simulate."""
LEAST_INFLUENCE = 0.3
"""A parameter that moves all errors together by less, in standard errors, keeps its prior."""

MUCH_WORSE = 1.1
"""Ratio by which no quantity's median error on held-out groups may grow: a gain in TTFT is not to
be paid for with steps that are mistimed."""
SMALL = 0.06
"""Median error up to which no worsening counts: repeated runs of one configuration differ by as
much in TTFT."""
UNEXPLAINED = 0.2
"""Median error of held-out groups' TPOT or throughput beyond which it is not overheads that are
wrong: those of steps would stand for what nobody has modelled, and stay where they are."""
STEP_QUANTITIES = ("tpot", "request_throughput")
PARTS = ("", "frontend_")
"""What is tried to be kept, by how the names begin: everything, or what stands before the engine,
which moves no step."""

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Fitted:
    """One class's overheads, and outcomes of its cases before, after, and held out.

    ``held_out`` has each case under overheads fitted without its fold.
    """

    subject: CalibrationClass
    figures: Figures
    before: tuple[Outcome, ...]
    after: tuple[Outcome, ...]
    held_out: tuple[Outcome, ...]


def fit(
    subjects: Sequence[CalibrationClass],
    predictions: Predictions,
    tell: Tell = lambda line: None,
    *,
    is_own: bool = False,
) -> list[Fitted]:
    """Returns the fit of every class; all of them share the processes of ``predictions``.

    ``is_own`` says that a user fits one deployment's own runs: then a lower loss is enough, and
    what figures would stand for elsewhere is no matter.
    """
    searches = [_Search(subject, is_own=is_own) for subject in subjects]
    before = _asked(predictions, [[Question(c, {}) for c in s.cases] for s in subjects])
    for search, outcomes in zip(searches, before, strict=True):
        search.begin(outcomes)
    for number in range(ROUNDS):
        tell(f"round {number + 1} of {ROUNDS}: {sum(len(s.slopes()) for s in searches):,} slopes")
        for search, outcomes in zip(
            searches, _asked(predictions, [s.slopes() for s in searches]), strict=True
        ):
            search.learn(outcomes)
        for search, outcomes in zip(
            searches, _asked(predictions, [s.strides() for s in searches]), strict=True
        ):
            search.move(outcomes)
    tell("held-out groups")
    ends = []
    for part in PARTS:
        held_out = _asked(predictions, [search.held_out_questions(part) for search in searches])
        after = _asked(predictions, [search.final_questions(part) for search in searches])
        ends.append(zip(after, held_out, strict=True))
    return [
        search.fitted(first, dict(zip(PARTS, by_part, strict=True)))
        for search, first, *by_part in zip(searches, before, *ends, strict=True)
    ]


def _asked(predictions: Predictions, by_class: list[list[Question]]) -> list[list[Outcome]]:
    """Returns the answers to all questions of all classes, asked at once."""
    answers = iter(predictions.ask([q for questions in by_class for q in questions]))
    return [[next(answers) for _ in questions] for questions in by_class]


def _only(part: str, figures: Figures) -> Figures:
    return {name: value for name, value in figures.items() if name.startswith(part)}


class _Search:
    """The search for one class's overheads: where it stands, and how errors change there."""

    def __init__(self, subject: CalibrationClass, *, is_own: bool) -> None:
        self.subject = subject
        self.is_own = is_own
        self.parameters = parameters_of(subject.card)
        self.at: FloatArray = self.prior.mean
        self.model: Linearised | None = None
        self.rows: list[tuple[int, str]] = []

    @property
    def prior(self) -> Prior:
        """The priors of the parameters that still move."""
        logs = [[math.log(v) for v in (p.prior, p.low, p.high)] for p in self.parameters]
        mean, low, high = np.array(logs).reshape(-1, 3).T
        return Prior(mean, np.array([p.spread for p in self.parameters]), low, high)

    def figures(self, at: FloatArray) -> Figures:
        """Returns overheads by name; four digits are more than can be told apart."""
        pairs = zip(self.parameters, at.tolist(), strict=True)
        return {p.name: float(f"{math.exp(x):.4g}") for p, x in pairs}

    def begin(self, before: Sequence[Outcome]) -> None:
        """Takes the outcomes under the card's figures: what is predicted at all is fitted."""
        self.rows = [
            (i, metric)
            for i, outcome in enumerate(before)
            for metric in fitted_metrics(outcome.case.measured)
            if not math.isnan(log_error(outcome, metric))
        ]

    def slopes(self) -> list[Question]:
        """Returns every case where the search stands, and cut short: there, and with each overhead
        a little larger."""
        cut = [shortened(case) for case in self.subject.cases]
        points = [self.at, *(self.at + DIFFERENCE * np.eye(len(self.at)))]
        short = [Question(case, f) for f in map(self.figures, points) for case in cut]
        return self._at(self.at) + short

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        """Takes the answers to :meth:`slopes`; drops parameters that they say nothing about."""
        errors = self._errors(outcomes)
        slopes = (errors[2:] - errors[1]).T / DIFFERENCE
        is_first = self.model is None
        weights = self._weights()
        if is_first:
            influence = np.sqrt(weights @ (slopes * self.prior.spread) ** 2)
            kept = np.flatnonzero(influence >= LEAST_INFLUENCE)
            self.parameters = tuple(self.parameters[i] for i in kept.tolist())
            self.at, slopes = self.at[kept], slopes[:, kept]
        self.model = Linearised(self.at, errors[0], slopes, weights)

    def strides(self) -> list[Question]:
        """Returns every case at points on the way to where the linear problem is solved."""
        return self._at(*self._ahead())

    def move(self, outcomes: Sequence[Outcome]) -> None:
        """Takes the answers to :meth:`strides`, and goes to the best of them, or stays."""
        assert self.model is not None, "nothing was learnt yet"
        points = [self.at, *self._ahead()]
        errors = np.vstack((self.model.errors, self._errors(outcomes)))
        costs = [
            robust_cost(row, self.model.weights) + self.prior.penalty(x)
            for row, x in zip(errors, points, strict=True)
        ]
        self.at = points[int(np.argmin(costs))]

    def held_out_questions(self, part: str) -> list[Question]:
        """Returns every case under overheads that were fitted without its fold."""
        folds = self.subject.folds()
        by_fold = {f: _only(part, self._without(folds, f)) for f in sorted(set(folds.tolist()))}
        pairs = zip(self.subject.cases, folds.tolist(), strict=True)
        return [Question(case, by_fold[fold]) for case, fold in pairs]

    def final_questions(self, part: str) -> list[Question]:
        """Returns every case where the search ended."""
        figures = _only(part, self.figures(self.at))
        return [Question(case, figures) for case in self.subject.cases]

    def fitted(
        self,
        before: Sequence[Outcome],
        ends: Mapping[str, tuple[Sequence[Outcome], Sequence[Outcome]]],
    ) -> Fitted:
        """Returns the result: no figures at all where held-out groups are none the better.

        ``ends`` has outcomes under all cases' overheads, and under those without their fold, by
        the part of the overheads that was taken.
        """
        for part, (after, held_out) in ends.items():
            if self._is_better(before, held_out, moves_steps=not part):
                figures = _only(part, self.figures(self.at))
                return Fitted(
                    subject=self.subject,
                    figures=figures,
                    before=tuple(before),
                    after=tuple(after),
                    held_out=tuple(held_out),
                )
        own = tuple(before)
        return Fitted(subject=self.subject, figures={}, before=own, after=own, held_out=own)

    def _is_better(
        self, before: Sequence[Outcome], held_out: Sequence[Outcome], *, moves_steps: bool
    ) -> bool:
        weights = self._weights()
        losses = [robust_cost(self._errors(o)[0], weights) for o in (before, held_out)]
        medians = [self._median_errors(o) for o in (before, held_out)]
        is_worse = any(
            after > max(SMALL, MUCH_WORSE * medians[0][q]) for q, after in medians[1].items()
        )
        left = [medians[1].get(quantity, 0.0) for quantity in STEP_QUANTITIES]
        is_explained = not moves_steps or max(left) <= UNEXPLAINED
        is_sound = self.is_own or (is_explained and not is_worse)
        return losses[1] < losses[0] and is_sound

    def _median_errors(self, outcomes: Sequence[Outcome]) -> dict[str, float]:
        """Returns the median absolute error by quantity; infinite where most cannot run."""
        found: dict[str, list[float]] = {}
        for i, metric in self.rows:
            error = abs(math.expm1(log_error(outcomes[i], metric)))
            found.setdefault(quantity_of(metric), []).append(math.inf if error != error else error)
        return {quantity: float(np.median(errors)) for quantity, errors in found.items()}

    def _at(self, *points: FloatArray) -> list[Question]:
        figures = [self.figures(x) for x in points]
        return [Question(case, f) for f in figures for case in self.subject.cases]

    def _ahead(self) -> list[FloatArray]:
        assert self.model is not None, "nothing was learnt yet"
        end = minimise(self.model, self.prior, RADIUS)
        return [self.at + share * (end - self.at) for share in STRIDES]

    def _errors(self, outcomes: Sequence[Outcome]) -> FloatArray:
        """Returns logarithmic errors over their standard errors, shape (points, rows)."""
        n = len(self.subject.cases)
        noise = [fitted_metrics(case.measured) for case in self.subject.cases]
        rows = [
            [log_error(outcomes[at + i], metric) / noise[i][metric] for i, metric in self.rows]
            for at in range(0, len(outcomes), n)
        ]
        return np.asarray(np.nan_to_num(np.array(rows, dtype=np.float64), nan=LOST))

    def _without(self, folds: IntArray, fold: int) -> Figures:
        """Returns overheads from which the influence of one fold is taken away."""
        assert self.model is not None, "nothing was learnt yet"
        used = np.array([float(folds[case] != fold) for case, _ in self.rows])
        prior = self.prior
        change = minimise(self.model.only(used), prior, RADIUS) - minimise(
            self.model, prior, RADIUS
        )
        return self.figures(np.clip(self.at + change, prior.low, prior.high))

    def _weights(self) -> FloatArray:
        groups = [self.subject.cases[i].group for i, _ in self.rows]
        rows = Counter(groups)
        return np.array([min(1.0, GROUP_WEIGHT / rows[group]) for group in groups])
