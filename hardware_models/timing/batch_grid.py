"""Attention measured over whole batches: prefill behind a prefix, decode, and both in one step."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.timing.prefill_curve import PrefillCurve, pairs
from dynosim.hardware_models.timing.tables import MissingTable, OpTable

AXES = ("chunk_tokens", "prefix_tokens", "num_decode", "kv_tokens")


@dataclass(frozen=True, eq=False)
class BatchGrid:
    """Seconds of one layer's attention by chunk, prefix, decoding sequences and their context.

    ``seconds`` has shape (chunks, prefixes, decodes, contexts); the first knot of every axis is 0,
    and cells that were not measured are NaN.
    """

    chunk: FloatArray
    prefix: FloatArray
    decodes: FloatArray
    context: FloatArray
    seconds: FloatArray

    @classmethod
    def of(cls, rows: OpTable) -> BatchGrid:
        """Returns the grid of a table's rows; :class:`MissingTable` unless prefill and decode were
        each measured alone too."""
        axes = [np.asarray(rows.axis(key), dtype=np.float64) for key in AXES]
        if any(axis[0] != 0.0 or len(axis) < 3 for axis in axes):
            raise MissingTable(f"{rows.name}: no parts alone, or fewer than two sizes of one")
        chunk, prefix, decodes, context = axes
        return cls(chunk, prefix, decodes, context, rows.grid())

    @property
    def prefill_s(self) -> FloatArray:
        """Seconds without decoding sequences, shape (chunks - 1, prefixes)."""
        return self.seconds[1:, :, 0, 0]

    @property
    def decode_s(self) -> FloatArray:
        """Seconds without a chunk, shape (decodes - 1, contexts - 1)."""
        return self.seconds[0, 0, 1:, 1:]


@dataclass(frozen=True, eq=False)
class PrefillGrid(PrefillCurve):
    """Prefill attention measured over chunk and prefix.

    What (query, key) pairs take at the rate of the largest measured prefill is set aside; the rest
    (``rest_s``, shape (chunks, prefixes)) is nearly flat and interpolated bilinearly.
    """

    prefix: tuple[float, ...] = ()
    rest_s: tuple[tuple[float, ...], ...] = ()
    s_per_pair: float = 0.0

    @classmethod
    def over(cls, grid: BatchGrid) -> PrefillGrid:
        """Returns the prefill of a measured grid."""
        chunk, prefix, seconds = grid.chunk[1:], grid.prefix, grid.prefill_s
        work = np.array([[pairs(c, p, None) for p in prefix.tolist()] for c in chunk.tolist()])
        largest = np.unravel_index(np.nanargmax(np.where(np.isnan(seconds), 0, work)), work.shape)
        s_per_pair = float(seconds[largest] / work[largest])
        rest = _between(_between(seconds - s_per_pair * work, prefix, 1), chunk, 0) - seconds[0, 0]
        return cls(
            tokens=tuple(chunk.tolist()),
            root_s=tuple(np.sqrt(np.maximum(seconds[:, 0] - seconds[0, 0], 0.0)).tolist()),
            launch_s=float(seconds[0, 0]),
            prefix=tuple(prefix.tolist()),
            rest_s=tuple(map(tuple, rest.tolist())),
            s_per_pair=s_per_pair,
        )

    def seconds(self, chunk_tokens: float, prefix_tokens: float) -> float:
        i, f = _place(self.tokens, chunk_tokens)
        j, g = _place(self.prefix, prefix_tokens)
        f, g = min(f, 1.0), min(g, 1.0)
        low, high = self.rest_s[i], self.rest_s[i + 1]
        near = low[j] + g * (low[j + 1] - low[j])
        far = high[j] + g * (high[j + 1] - high[j])
        own = chunk_tokens * (prefix_tokens + 0.5 * chunk_tokens)
        seconds = near + f * (far - near) + self.s_per_pair * own
        arithmetic = own * self.flop_s_per_pair + chunk_tokens * self.flop_s_per_token
        return max(seconds, arithmetic, (chunk_tokens + prefix_tokens) * self.kv_s_per_token)


class MeasuredMix:
    """What decoding sequences add to the attention of a step with prefill, all layers together.

    Interpolated linearly between measured batches of one chunk. A step's chunks count as one of
    their summed length, behind that prefix at which it takes as long as they do. Beyond the
    largest batch or context the last line goes on; below the smallest the smallest is held.
    """

    __slots__ = ("_added_s", "_chunk", "_context", "_decodes", "_prefill_s")

    def __init__(self, grid: BatchGrid, layers: int) -> None:
        chunk, prefix, decodes, context = (
            *(grid.chunk[1:], grid.prefix),
            *(grid.decodes[1:], grid.context[1:]),
        )
        added = grid.seconds[1:, :, 1:, 1:] - grid.prefill_s[:, :, None, None]
        for axis, knots in ((1, prefix), (3, context), (0, chunk)):
            added = _between(added, knots, axis)
        added = _continued(added, decodes)
        alone = np.zeros((*added.shape[:2], 1, added.shape[3]))
        self._chunk: list[float] = chunk.tolist()
        self._decodes: list[float] = grid.decodes.tolist()
        self._context: list[float] = context.tolist()
        prefill_s = _between(_between(grid.prefill_s, prefix, 1), chunk, 0)
        self._prefill_s: list[list[float]] = (layers * prefill_s).tolist()
        self._added_s: list[list[list[list[float]]]] = np.concatenate(
            (alone, layers * np.maximum(added, 0.0)), axis=2
        ).tolist()

    def seconds(
        self, prefill_s: float, prefill_tokens: int, num_decode: int, context_tokens: float
    ) -> float:
        """Returns attention seconds of a step whose chunks take ``prefill_s`` by themselves."""
        i, f = _place(self._chunk, prefill_tokens)
        f = min(f, 1.0)
        n, h = _place(self._decodes, num_decode)
        k, g = _place(self._context, context_tokens / num_decode)
        low = self._at_prefix(i, prefill_s, n, h, k, g)
        if not f:
            return prefill_s + low
        high = self._at_prefix(i + 1, prefill_s, n, h, k, g)
        return prefill_s + low + f * (high - low)

    def _at_prefix(self, chunk: int, prefill_s: float, n: int, h: float, k: int, g: float) -> float:
        j, p = _place(self._prefill_s[chunk], prefill_s)
        p = min(p, 1.0)
        low = _bilinear(self._added_s[chunk][j], n, h, k, g)
        return low + p * (_bilinear(self._added_s[chunk][j + 1], n, h, k, g) - low)


def _bilinear(plane: list[list[float]], n: int, h: float, k: int, g: float) -> float:
    few, many = plane[n], plane[n + 1]
    low = few[k] + g * (few[k + 1] - few[k])
    return low + h * (many[k] + g * (many[k + 1] - many[k]) - low)


def _place(knots: list[float] | tuple[float, ...], x: float) -> tuple[int, float]:
    """Returns the interval of ``x`` and its share of it: 0 before the first knot, over 1 past the
    last."""
    i = min(max(bisect_right(knots, x) - 1, 0), len(knots) - 2)
    return i, max(0.0, (x - knots[i]) / (knots[i + 1] - knots[i]))


def _between(values: FloatArray, knots: FloatArray, axis: int) -> FloatArray:
    """Returns ``values`` with the NaN between measured ones of an axis interpolated linearly."""
    lines = np.moveaxis(values, axis, -1).copy()
    for line in lines.reshape(-1, len(knots)):
        known = ~np.isnan(line)
        if known.any() and not known.all():
            at = np.interp(knots, knots[known], line[known], np.nan, np.nan)
            line[:] = np.where(known, line, at)
    return np.moveaxis(lines, -1, axis)


def _continued(added: FloatArray, decodes: FloatArray) -> FloatArray:
    """Returns ``added`` with its NaN continued along the sequences as lines, one proportionally."""
    added = added.copy()
    for i in range(1, len(decodes)):
        last, step = added[:, :, i - 1], decodes[i] - decodes[i - 1]
        if i > 1:
            slope = (last - added[:, :, i - 2]) / (decodes[i - 1] - decodes[i - 2])
        else:
            slope = last / decodes[0]
        missing = np.isnan(added[:, :, i])
        added[:, :, i][missing] = (last + slope * step)[missing]
    return added
