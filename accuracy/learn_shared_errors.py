"""Learns how errors go together from errors on held-out groups."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from dynosim.accuracy.error_classes import LEAST_GROUPS
from dynosim.accuracy.errors import Residual
from dynosim.accuracy.learn_intervals import left_out_scores
from dynosim.accuracy.shared_errors import SharedErrors
from dynosim.hardware_models.arrays import FloatArray

FARTHEST = 3.0
"""Scores beyond this count as this: one run that went wrong must not decide a variance."""

QUANTITIES = ("e2el", "output_throughput", "request_throughput", "tpot", "ttft")
"""What enough stacks were measured of; percentiles of latencies are not among them."""

LEAST_PAIRED = 10
"""Stacks with several deployments under one load that are enough to go by these alone."""


@dataclass(frozen=True)
class _Run:
    """Scores of one measured run by quantity, and the load it was under."""

    load: tuple[str, str]
    scores: Mapping[str, float]


_Stacks = Mapping[str, Sequence[_Run]]


def learn_shared_errors(residuals: Sequence[Residual]) -> SharedErrors:
    """Returns the parts of the residuals' scores, stacks counting alike.

    A stack is a group of residuals: a model on a GPU under a backend. Its own part is what two of
    its deployments differ in under one load, as candidates of a search do; where too few were
    measured so, what its runs scatter around their mean. What is left of the second moment is
    shared.
    """
    stacks = _stacks(residuals)
    quantities = tuple(sorted({q for runs in stacks.values() for r in runs for q in r.scores}))
    shape = (len(quantities), len(quantities))
    own, total, groups = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int64)
    for i, one in enumerate(quantities):
        for j, other in enumerate(quantities[: i + 1]):
            own[i, j], total[i, j], groups[i, j] = _moments(stacks, one, other)
            for part in (own, total, groups):
                part[j, i] = part[i, j]
    shared, own = _semidefinite(total - own), _semidefinite(own)
    spread = np.sqrt(np.diag(shared) + np.diag(own))
    scale = np.outer(spread, spread)
    return SharedErrors(
        quantities=quantities, shared=shared / scale, own=own / scale, groups=groups
    )


def _stacks(residuals: Sequence[Residual]) -> _Stacks:
    """Returns runs by stack; two statistics of one quantity count as their mean."""
    chosen = [r for r in residuals if r.quantity in QUANTITIES]
    found: dict[tuple[str, str, str, str], dict[str, list[float]]] = defaultdict(dict)
    for residual, score in left_out_scores(chosen):
        own = found[residual.group, residual.set, residual.row, residual.load]
        own.setdefault(residual.quantity, []).append(float(np.clip(score, -FARTHEST, FARTHEST)))
    stacks: dict[str, list[_Run]] = defaultdict(list)
    for (group, name, row, load), scores in found.items():
        means = {q: float(np.mean(values)) for q, values in scores.items()}
        stacks[group].append(_Run((name, load or row), means))
    return stacks


def _moments(stacks: _Stacks, one: str, other: str) -> tuple[float, float, int]:
    """Returns the own and the whole second moment of two quantities, and how many stacks tell it.

    Zero where these are too few.
    """
    paired, scattered, whole = [], [], []
    for runs in stacks.values():
        known = [r for r in runs if one in r.scores and other in r.scores]
        if not known:
            continue
        pairs = np.array([(r.scores[one], r.scores[other]) for r in known])
        whole.append(float((pairs[:, 0] * pairs[:, 1]).mean()))
        if len(pairs) > 1:
            scattered.append(float(np.cov(pairs.T)[0, 1]))
        loads = [r.load for r in known]
        alike = [(i, j) for i, j in combinations(range(len(loads)), 2) if loads[i] == loads[j]]
        if alike:
            apart = np.array([pairs[i] - pairs[j] for i, j in alike])
            paired.append(float((apart[:, 0] * apart[:, 1]).mean() / 2.0))
    own = paired if len(paired) >= LEAST_PAIRED else scattered
    if len(own) < LEAST_GROUPS:
        return 0.0, 0.0, len(own)
    return float(np.mean(own)), float(np.mean(whole)), len(own)


def _semidefinite(covariance: FloatArray) -> FloatArray:
    """Returns the nearest matrix that is a covariance."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def write_shared_errors(model: SharedErrors, path: Path) -> None:
    """Writes a model as CSV, a row a pair of quantities."""
    with path.open("w", newline="", encoding="utf-8") as lines:
        rows = csv.writer(lines, lineterminator="\n")
        rows.writerow(("quantity", "other", "shared", "own", "groups"))
        for i, one in enumerate(model.quantities):
            for j, other in enumerate(model.quantities[: i + 1]):
                parts = (f"{part[i, j]:.4f}" for part in (model.shared, model.own))
                rows.writerow((one, other, *parts, int(model.groups[i, j])))
