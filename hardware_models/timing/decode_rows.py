"""Decode attention of all layers for one batch size, as lines over the batch's total context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.timing.decode_grid import DecodeGrid


class DecodeRow(NamedTuple):
    """Seconds at the knots of total context, and slopes behind them; plain floats, from 0 on."""

    context_tokens: list[float]
    seconds: list[float]
    slope_s: list[float]


class DecodeRows(dict[int, DecodeRow]):
    """Rows by batch size, built when first asked for and kept.

    ``grids`` are (layers, grid of one layer); ``constant_s`` is what does not depend on context
    (states of linear-attention layers), by batch size.
    """

    def __init__(
        self, grids: tuple[tuple[int, DecodeGrid], ...], constant_s: Callable[[int], float]
    ) -> None:
        super().__init__()
        self._grids = grids
        self.constant_s = constant_s
        # Not np.unique, which would load numpy.ma for this.
        knots = np.array(sorted({c for _, g in grids for c in g.context.tolist()} or {1.0}))
        self._context = np.concatenate(([0.0], knots[knots > 0]))

    def mapped(
        self,
        to: Sequence[Callable[[FloatArray, FloatArray, FloatArray], FloatArray]],
        constant_s: Callable[[int], float],
    ) -> DecodeRows:
        """Returns rows of other grids, one map each as :meth:`DecodeGrid.mapped` takes it."""
        pairs = zip(self._grids, to, strict=True)
        grids = tuple((layers, grid.mapped(change)) for (layers, grid), change in pairs)
        return DecodeRows(grids, constant_s)

    def read_again(self, times: float) -> DecodeRows:
        """Returns rows of kernels that read all they read ``times``; launches stay."""
        grids = tuple((layers, grid.read_again(times)) for layers, grid in self._grids)
        return DecodeRows(grids, lambda n: self.constant_s(n) * times)

    def __missing__(self, num_decode: int) -> DecodeRow:
        row = self[num_decode] = self._build(num_decode)
        return row

    def _build(self, num_decode: int) -> DecodeRow:
        seconds = np.full(len(self._context), float(self.constant_s(num_decode)))
        for layers, grid in self._grids:
            seconds += layers * np.interp(self._context, grid.context, grid.row(num_decode))
        total = self._context * num_decode
        slope = np.append(np.diff(seconds) / np.diff(total), 0.0)
        return DecodeRow(total.tolist(), seconds.tolist(), slope.tolist())
