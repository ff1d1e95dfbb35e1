"""One engine under one load: what its decodes and its prefills cost, by how many decode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.search.estimate.load import Load
from dynosim.sim.engine.timing import Timer

_LEAST_S = 1.0e-9
"""A prompt adds something to a step, even where the step is padded to the same graph."""

_COARSE, _FINE = 2.0, 1.15
"""Ratios of neighbouring numbers of decodes at which prefills and decodes are timed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineCurve:
    """Seconds by the number of decoding sequences, shape (most + 1,); element 0 is of none.

    ``decode_s`` is a step of decodes alone. ``prefill_s`` is what the mean prompt adds to the
    steps that it shares, ``answer_s`` how long the 99th percentile's prompt takes from its first
    chunk to its first token, and ``mean_answer_s`` the mean prompt's. ``gap_s`` is a step that a
    chunk of a long prompt is part of, or comes before.
    """

    decode_s: FloatArray
    prefill_s: FloatArray
    mean_answer_s: FloatArray
    long_answer_s: FloatArray
    gap_s: FloatArray


def decode_curve(timer: Timer, load: Load, most: int) -> FloatArray:
    """Returns the seconds of a step of 0 ... ``most`` decodes at the load's mean context."""
    knots = _knots(most, _FINE)
    lines = (timer.decode_line(b, round(b * load.context_tokens)) for b in knots[1:])
    return np.interp(np.arange(most + 1), knots, [0.0, *(seconds for seconds, _, _ in lines)])


def engine_curve(
    timer: Timer,
    load: Load,
    decode_s: FloatArray,
    *,
    budget: int,
    mixes: bool,
    query_tokens: int = 1,
) -> EngineCurve:
    """Returns the curve of an engine whose steps hold at most ``budget`` tokens.

    ``decode_s`` is its :func:`decode_curve`; ``mixes`` says that decodes share their steps with
    prefill chunks; where they do not, they wait. A decode takes ``query_tokens`` of a step.
    """
    most = len(decode_s) - 1
    sizes = np.arange(most + 1)
    knots = _knots(most, _COARSE)
    added, mean_answer, long_answer, gaps = [], [], [], []
    for size in knots:
        # The prompt itself takes a slot.
        sharing = min(size, most - 1) if mixes else 0
        batch = Batch(sharing, sharing * query_tokens)
        room = max(budget - batch.tokens, 1)
        costs = [_prefill(timer, load, prompt, room, batch) for prompt in load.prompt_classes]
        steps = [steps for _, steps in costs]
        step_s = float(decode_s[sharing])
        added.append(float(np.mean([s for s, _ in costs])))
        mean_answer.append(added[-1] + float(np.mean(steps)) * step_s)
        seconds, count = _prefill(timer, load, load.long_prompt, room, batch)
        long_answer.append(seconds + count * step_s)
        gaps.append(seconds / count)
    return EngineCurve(
        decode_s=decode_s,
        prefill_s=np.interp(sizes, knots, added),
        mean_answer_s=np.interp(sizes, knots, mean_answer),
        long_answer_s=np.interp(sizes, knots, long_answer),
        gap_s=decode_s + np.interp(sizes, knots, gaps),
    )


def _knots(most: int, factor: float) -> list[int]:
    """Returns 0, 1 and so on, ``factor`` apart, up to ``most``."""
    knots = [0, 1]
    while knots[-1] < most:
        knots.append(min(max(knots[-1] + 1, round(knots[-1] * factor)), most))
    return knots[: most + 1]


class Batch(NamedTuple):
    """The decodes that a prefill chunk shares its step with: sequences, and their tokens."""

    size: int
    tokens: int


def _prefill(timer: Timer, load: Load, prompt: int, room: int, batch: Batch) -> tuple[float, int]:
    """Returns the seconds that a prompt adds to steps of a batch of decodes, and its steps."""
    context = round(batch.size * load.context_tokens)
    alone_s = timer.decode_line(batch.size, context)[0] if batch.size else 0.0
    prefix = round(load.hit_tokens)
    seconds, steps, done = 0.0, 0, 0
    while done < prompt:
        chunk = min(room, prompt - done)
        attention_s = timer.prefill_attention_s(chunk, prefix + done)
        logits = batch.tokens + (done + chunk == prompt)
        step_s = timer.step_s(chunk + batch.tokens, logits, attention_s, batch.size, context)
        seconds += max(step_s - alone_s, _LEAST_S)
        done += chunk
        steps += 1
    return seconds, steps
