"""Fits the overheads of backends to measured cases, and holds the result against held-out groups.

The logarithms of a few overheads, bounded and drawn to their priors, minimise the soft-L1 loss of
the logarithms of predicted / measured, each group counting alike. Predictions are linearised at the
best overheads so far by finite differences, the linear problem is solved within a trust region, and
so on: two or three rounds of (parameters + 1) simulations a case.

For each fold the last linear problem is solved again without the fold's groups, and these are
simulated with that solution. What is shared with the full fit is the point at which slopes were
taken: how predictions react to overheads, which knows nothing of what was measured.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dynosim.accuracy.calibration_class import CalibrationClass
from dynosim.accuracy.linearised import Linearised, Prior, minimise, robust_cost
from dynosim.accuracy.parameters import Parameter, fitted_metrics, parameters_of
from dynosim.accuracy.predictions import Figures, Predictions, Question, log_error
from dynosim.accuracy.run import Outcome
from dynosim.hardware_models.arrays import FloatArray, IntArray

ROUNDS = 3
DIFFERENCE = 0.15
"""Step of finite differences, in logarithms: wide enough to look across small kinks."""
RADIUS = 1.5
"""How far one round may move a logarithm."""
GROUP_WEIGHT = 8.0
"""Measurements that a group counts for, however many it has: what priors are weighed against."""
LEAST_INFLUENCE = 0.3
"""A parameter that moves all errors together by less, in standard errors, keeps its prior."""

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
) -> list[Fitted]:
    """Returns the fit of every class; all of them share the processes of ``predictions``."""
    searches = [_Search(subject) for subject in subjects]
    before = _asked(predictions, [[Question(c, {}) for c in s.cases] for s in subjects])
    for number in range(ROUNDS):
        tell(f"round {number + 1} of {ROUNDS}: {sum(len(s.questions()) for s in searches):,} runs")
        answers = _asked(predictions, [search.questions() for search in searches])
        for search, outcomes in zip(searches, answers, strict=True):
            search.learn(outcomes)
    tell("held-out groups")
    held_out = _asked(predictions, [search.held_out_questions() for search in searches])
    after = _asked(predictions, [search.final_questions() for search in searches])
    return [
        Fitted(
            subject=search.subject,
            figures=search.figures(search.best),
            before=tuple(first),
            after=tuple(last),
            held_out=tuple(outside),
        )
        for search, first, last, outside in zip(searches, before, after, held_out, strict=True)
    ]


def _asked(predictions: Predictions, by_class: list[list[Question]]) -> list[list[Outcome]]:
    """Returns the answers to all questions of all classes, asked at once."""
    answers = iter(predictions.ask([q for questions in by_class for q in questions]))
    return [[next(answers) for _ in questions] for questions in by_class]


@dataclass(eq=False)
class _Search:
    """The search for one class's overheads: where it is, and the best so far."""

    subject: CalibrationClass
    parameters: tuple[Parameter, ...] = ()
    at: FloatArray = field(default_factory=lambda: np.zeros(0))
    radius: float = RADIUS
    model: Linearised | None = None
    cost: float = math.inf
    rows: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parameters = parameters_of(self.subject.card)
        self.at = self.prior.mean

    @property
    def prior(self) -> Prior:
        """The priors of the parameters that still move."""
        logs = [[math.log(v) for v in (p.prior, p.low, p.high)] for p in self.parameters]
        mean, low, high = np.array(logs).reshape(-1, 3).T
        return Prior(mean, np.array([p.spread for p in self.parameters]), low, high)

    @property
    def best(self) -> FloatArray:
        """The logarithms of the best overheads that were tried."""
        assert self.model is not None, "nothing was learnt yet"
        return self.model.at

    def figures(self, at: FloatArray) -> Figures:
        """Returns overheads by name; four digits are more than can be told apart."""
        pairs = zip(self.parameters, at.tolist(), strict=True)
        return {p.name: float(f"{math.exp(x):.4g}") for p, x in pairs}

    def questions(self) -> list[Question]:
        """Returns every case here, and with each overhead a little larger."""
        points = [self.at, *(self.at + DIFFERENCE * np.eye(len(self.at)))]
        return [Question(c, self.figures(x)) for x in points for c in self.subject.cases]

    def held_out_questions(self) -> list[Question]:
        """Returns every case under overheads that were fitted without its fold."""
        folds = self.subject.folds()
        by_fold = {f: self._without(folds, f) for f in sorted(set(folds.tolist()))}
        pairs = zip(self.subject.cases, folds.tolist(), strict=True)
        return [Question(case, by_fold[fold]) for case, fold in pairs]

    def final_questions(self) -> list[Question]:
        """Returns every case under the best overheads."""
        figures = self.figures(self.best)
        return [Question(case, figures) for case in self.subject.cases]

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        """Takes the answers to :meth:`questions`, and moves on."""
        n = len(self.subject.cases)
        if self.model is None:
            self.rows = _rows(outcomes[:n])
        by_point = [outcomes[i : i + n] for i in range(0, len(outcomes), n)]
        errors = np.array([self._errors(answers) for answers in by_point])
        slopes = np.nan_to_num((errors[1:] - errors[0]).T / DIFFERENCE)
        found = Linearised(self.at, errors[0], slopes, self._weights())
        cost = robust_cost(found.errors, found.weights) + self.prior.penalty(self.at)
        if self.model is None:
            found = self._keep_influential(found)
        if cost <= self.cost:
            self.model, self.cost = found, cost
        else:
            # The step overshot: try a shorter one from where it began.
            self.radius *= 0.3
        assert self.model is not None
        self.at = minimise(self.model, self.prior, self.radius)

    def _keep_influential(self, model: Linearised) -> Linearised:
        """Leaves alone the parameters that the measurements say nothing about."""
        spread = self.prior.spread
        influence = np.sqrt(model.weights @ (model.slopes * spread) ** 2)
        kept = np.flatnonzero(influence >= LEAST_INFLUENCE)
        self.parameters = tuple(self.parameters[i] for i in kept.tolist())
        return Linearised(model.at[kept], model.errors, model.slopes[:, kept], model.weights)

    def _without(self, folds: IntArray, fold: int) -> Figures:
        assert self.model is not None
        used = np.array([float(folds[case] != fold) for case, _ in self.rows])
        return self.figures(minimise(self.model.only(used), self.prior, RADIUS))

    def _errors(self, outcomes: Sequence[Outcome]) -> list[float]:
        """Returns every row's logarithmic error over its standard error."""
        noise = [fitted_metrics(case.measured) for case in self.subject.cases]
        return [log_error(outcomes[i], metric) / noise[i][metric] for i, metric in self.rows]

    def _weights(self) -> FloatArray:
        groups = [self.subject.cases[i].group for i, _ in self.rows]
        rows = Counter(groups)
        return np.array([min(1.0, GROUP_WEIGHT / rows[group]) for group in groups])


def _rows(outcomes: Sequence[Outcome]) -> list[tuple[int, str]]:
    """Returns (case, metric) of everything that was measured, counts, and is predicted."""
    return [
        (i, metric)
        for i, outcome in enumerate(outcomes)
        for metric in fitted_metrics(outcome.case.measured)
        if not math.isnan(log_error(outcome, metric))
    ]
