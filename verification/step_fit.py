"""From an engine's steps to what its kernels and its host take: tables and overheads for it.

Kernels measured alone run with caches and a clock that are not those of an engine. Its own steps
tell by how much: each is a constant, some time a sequence that samples, the matrix products (with
all that is elementwise) times one factor, and attention times another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing.pricing import price
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.verification.stepped.step_record import StepRecord

PARTS = ("step", "sampled", "linear", "attention")
"""What a step's seconds are made of, in the order of a fit's coefficients."""

NO_OVERHEADS: Mapping[str, float] = {
    "host_step_s": 0.0,
    "host_per_sequence_s": 0.0,
    "layer_launch_s": 0.0,
    "eager_layer_s": 0.0,
    "step_gap_s": 0.0,
    "frontend_s": 0.0,
    "frontend_request_s": 0.0,
    "frontend_per_input_token_s": 0.0,
    "frontend_per_output_token_s": 0.0,
    "mixed_step_factor": 1.0,
}
"""Figures of a backend whose steps are their kernels, and which has no server before it."""

OUTLIER = 0.1
"""Steps further off than this share count less, in inverse proportion (Huber's weights)."""

ROUNDS = 5
LEAST_STEPS = 50

Cells = Mapping[str, Sequence[StepRecord]]
"""Steps by the load that they come from."""


@dataclass(frozen=True, kw_only=True)
class StepFit:
    """Seconds a step and a sampling sequence, and factors on the kernels' times.

    ``steps`` were fitted; ``held_out`` is each cell's total time, predicted by a fit without it,
    over the measured one, less one.
    """

    host_step_s: float
    host_per_sequence_s: float
    linear_factor: float
    attention_factor: float
    steps: int
    held_out: Mapping[str, float]

    @property
    def figures(self) -> dict[str, float]:
        """The overheads by their names in a calibration file."""
        own = {
            "host_step_s": self.host_step_s,
            "host_per_sequence_s": self.host_per_sequence_s,
        }
        return {**NO_OVERHEADS, **own}

    @cached_property
    def held_out_error(self) -> float:
        """Median absolute error of the cells."""
        return float(np.median(np.abs(list(self.held_out.values()))))


def fit_steps(engine: ResolvedEngine, cells: Cells) -> StepFit:
    """Returns the fit of all cells' steps to the kernel times of ``engine``.

    Non-negative least squares on relative errors. Raises UserError for too few steps.
    """
    tables = StepCosts.of(engine)
    parts = {name: tables.parts(steps) for name, steps in cells.items()}
    seconds = {name: np.array([s.cost_s for s in steps]) for name, steps in cells.items()}
    count = sum(map(len, seconds.values()))
    if count < LEAST_STEPS or len(cells) < 2:
        raise UserError(
            f"{count} steps of {len(cells)} load(s) are too few to fit",
            hint=f"needed: {LEAST_STEPS} steps of two loads",
        )
    held_out = {}
    for name in cells:
        others = [n for n in cells if n != name]
        found = _solve(*(np.concatenate([x[n] for n in others]) for x in (parts, seconds)))
        held_out[name] = float((parts[name] @ found).sum() / seconds[name].sum() - 1.0)
    step, sampled, linear, attention = _solve(
        np.concatenate(list(parts.values())), np.concatenate(list(seconds.values()))
    ).tolist()
    return StepFit(
        host_step_s=step,
        host_per_sequence_s=sampled,
        linear_factor=linear,
        attention_factor=attention,
        steps=count,
        held_out=held_out,
    )


def _solve(parts: FloatArray, seconds: FloatArray) -> FloatArray:
    from scipy.optimize import nnls

    relative = parts / seconds[:, None]
    weights = np.ones(len(seconds))
    found = np.zeros(len(PARTS))
    for _ in range(ROUNDS):
        found, _ = nnls(relative * weights[:, None], weights)
        off = np.abs(relative @ found - 1.0)
        weights = np.sqrt(1.0 / np.maximum(1.0, off / OUTLIER))
    return np.asarray(found, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class StepCosts:
    """An engine's kernel times by part, without what its host takes."""

    timer: StepTimer
    token_s: FloatArray
    logit_s: FloatArray

    @classmethod
    def of(cls, engine: ResolvedEngine) -> StepCosts:
        """Returns the costs of ``engine``, all overheads set aside."""
        bare: Any = {k: v for k, v in NO_OVERHEADS.items() if hasattr(engine.backend, k)}
        engine = replace(engine, backend=engine.backend.with_figures(bare))
        priced = price(engine)
        return cls(StepTimer.compile(engine), priced.token_s, priced.logit_s)

    def parts(self, steps: Sequence[StepRecord]) -> FloatArray:
        """Returns seconds by :data:`PARTS`, shape (steps, 4), the first two as counts."""
        return np.array([self._row(step) for step in steps if step.tokens])

    def _row(self, step: StepRecord) -> tuple[float, float, float, float]:
        sampled = len(step.new_tokens)
        linear = float(self.token_s[step.tokens] + self.logit_s[sampled])
        prefill = sum(
            self.timer.prefill_attention_s(w.tokens, w.context_tokens) for w in step.chunks
        )
        whole = self.timer.step_s(
            step.tokens, sampled, prefill, len(step.decodes), step.decode_context_tokens
        )
        return 1.0, float(sampled), linear, whole - linear
