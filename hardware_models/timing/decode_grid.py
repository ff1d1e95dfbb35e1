"""Decode attention over batch and context: a full grid from a ragged measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.timing.interpolate import lower_envelope

FAR_TOKENS = float(1 << 23)
"""Context that no model reaches: the last knot, so that every question is an interpolation."""
FAR_BATCH = float(1 << 14)

DecodeRoof = Callable[[FloatArray, FloatArray], FloatArray]
"""Roofline seconds for (sequences, tokens of context each), broadcasting."""


@dataclass(frozen=True, eq=False)
class DecodeGrid:
    """Seconds of one layer's decode attention; bilinear in (sequences, context per sequence).

    ``batch`` has shape (B,), ``context`` (C,) in tokens, ``seconds`` (B, C), nowhere NaN.
    """

    batch: FloatArray
    context: FloatArray
    seconds: FloatArray

    @classmethod
    def of(
        cls, batch: FloatArray, context: FloatArray, measured: FloatArray, roof: DecodeRoof
    ) -> DecodeGrid:
        """Returns the grid of a ragged measurement, NaN where memory ended it.

        Missing cells follow from smaller batches at the same context: decode attention is
        linear in total context (refitted R² 0.999 on four GPUs), so the last two batches give
        the line, kept between the roofline's slope and proportionality. The same rule adds one
        far knot on each axis. Equals ``measured`` on every cell that was measured.
        """
        b, c = np.append(batch, FAR_BATCH), np.append(context, FAR_TOKENS)
        seconds = np.full((len(b), len(c)), np.nan)
        seconds[:-1, :-1] = measured
        roofs = roof(b[:, None], c[None, :])
        _continue(seconds[0], roofs[0], c)
        for j in range(len(c)):
            if np.isnan(seconds[1, j]) and j > 1:
                # One batch measured here makes no line: the second follows its own contexts.
                seconds[1, j] = _next_on_line(seconds[1], roofs[1], c, j)
            _continue(seconds[:, j], roofs[:, j], b)
        return cls(b, c, seconds)

    def monotone(self) -> DecodeGrid:
        """Returns the grid without spikes: never cheaper for more sequences or more context."""
        return DecodeGrid(self.batch, self.context, lower_envelope(self.seconds))

    def mapped(self, to: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]) -> DecodeGrid:
        """Returns the grid of ``to`` (seconds, sequences, context): another shape's cost."""
        seconds = to(self.seconds, self.batch[:, None], self.context[None, :])
        return DecodeGrid(self.batch, self.context, seconds)

    def read_again(self, times: float) -> DecodeGrid:
        """Returns the grid of a kernel that reads the KV cache ``times``; launches stay."""
        launch = self.seconds.min()
        return DecodeGrid(self.batch, self.context, launch + (self.seconds - launch) * times)

    def floored(self, roof: DecodeRoof) -> DecodeGrid:
        """Returns the grid raised to the roofline, which no kernel can beat.

        Between knots too: the roofline is convex there and the grid is linear.
        """
        floor = roof(self.batch[:, None], self.context[None, :])
        return DecodeGrid(self.batch, self.context, np.maximum(self.seconds, floor))

    def clamped(self, window: int) -> DecodeGrid:
        """Returns the grid of the same kernel that looks back at most ``window`` tokens."""
        inside = self.context < window
        context = np.concatenate((self.context[inside], [float(window), FAR_TOKENS]))
        edge = np.array([np.interp(window, self.context, row) for row in self.seconds])
        seconds = np.column_stack((self.seconds[:, inside], edge, edge))
        return DecodeGrid(self.batch, context, seconds)

    def row(self, num_sequences: int) -> FloatArray:
        """Returns seconds at every ``context`` knot for a batch of ``num_sequences``, shape (C,).

        Below the smallest measured batch that batch's latency is held.
        """
        b = self.batch
        above = min(max(int(np.searchsorted(b, num_sequences)), 1), len(b) - 1)
        share = max(0.0, (num_sequences - b[above - 1]) / (b[above] - b[above - 1]))
        low, high = self.seconds[above - 1], self.seconds[above]
        return np.asarray(low + share * (high - low), dtype=np.float64)

    def at(self, num_sequences: int, context_tokens: float) -> float:
        """Returns the seconds of one step for a batch with this mean context."""
        return float(np.interp(context_tokens, self.context, self.row(num_sequences)))


def _continue(line: FloatArray, roof: FloatArray, x: FloatArray) -> None:
    """Fills the NaN cells of ``line`` in place: past its last value as a line, inside linearly."""
    known = np.flatnonzero(~np.isnan(line))
    if not len(known):
        return
    gaps = np.isnan(line)
    gaps[known[-1] :] = False
    line[gaps] = np.interp(x[gaps], x[known], line[known])
    for i in range(int(known[-1]) + 1, len(x)):
        line[i] = _next_on_line(line, roof, x, i)


def _next_on_line(column: FloatArray, roof: FloatArray, x: FloatArray, i: int) -> float:
    last, before = column[i - 1], column[i - 2] if i > 1 else np.nan
    step = x[i] - x[i - 1]
    proportional = last * (roof[i] / roof[i - 1] - 1.0) / step
    if np.isnan(before):
        return float(last + proportional * step)
    slope = (last - before) / (x[i - 1] - x[i - 2])
    least = (roof[i] - roof[i - 1]) / step
    return float(last + step * min(max(slope, least), max(proportional, least)))
