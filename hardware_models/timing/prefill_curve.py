"""Prefill attention of one chunk behind a cached prefix, from a curve over whole prompts."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.timing.interpolate import lower_envelope

Piece = tuple[float, float, float, float]
"""Tokens and root where a piece begins, how far the root rises on it, and how many tokens long."""


@dataclass(frozen=True, eq=False)
class PrefillCurve:
    """Seconds of prefill attention of one layer for one sequence; plain lists, fast to ask.

    ``tokens`` are the measured prompt lengths and ``root_s`` the square roots of their seconds:
    attention work grows with the square of the length, so the root is close to a line between
    two measured lengths. All seconds are those beyond ``launch_s``, what the kernel takes for the
    shortest prompt: one launch serves all chunks of a step, so that it is paid once a step, and a
    chunk adds what it takes beyond it (prompts of 128 tokens on H100: 17 us for one, 4 us for each
    of 128). ``flop_s_per_pair`` and ``kv_s_per_token`` are roofline seconds per
    (query, key) pair and per token of KV read. With ``additive`` the curve covers a whole
    attention block, projections included, whose share does not shrink with a prefix;
    ``flop_s_per_token`` are roofline seconds of those per new token. ``shared_root_s`` are the
    roots of what a length costs per token at most where it is a prefix: no more than any longer
    one, so that what the first tokens take beyond a launch is not counted over again.
    """

    tokens: tuple[float, ...]
    root_s: tuple[float, ...]
    launch_s: float = 0.0
    window: int | None = None
    flop_s_per_pair: float = 0.0
    kv_s_per_token: float = 0.0
    flop_s_per_token: float = 0.0
    additive: bool = False
    shared_root_s: tuple[float, ...] = field(init=False, repr=False)
    _pieces: tuple[Piece, ...] = field(init=False, repr=False)
    _shared_pieces: tuple[Piece, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        tokens, root_s = np.array(self.tokens), np.array(self.root_s)
        per_token = lower_envelope(root_s**2 / tokens)
        shared = tuple(np.sqrt(per_token * tokens).tolist())
        object.__setattr__(self, "shared_root_s", shared)
        object.__setattr__(self, "_pieces", _pieces(self.tokens, self.root_s))
        object.__setattr__(self, "_shared_pieces", _pieces(self.tokens, shared))

    @classmethod
    def of(
        cls,
        tokens: FloatArray,
        seconds: FloatArray,
        *,
        window: int | None = None,
        flop_s_per_pair: float = 0.0,
        kv_s_per_token: float = 0.0,
    ) -> PrefillCurve:
        """Returns the curve through the measured points, upward spikes taken off."""
        rising = lower_envelope(seconds)
        return cls(
            tuple(tokens.tolist()),
            tuple(np.sqrt(rising - rising[0]).tolist()),
            float(rising[0]),
            window,
            flop_s_per_pair,
            kv_s_per_token,
        )

    def as_block(self) -> PrefillCurve:
        """Returns the same curve as one of a whole attention block, projections included."""
        return replace(self, additive=True)

    def whole_s(self, tokens: float) -> float:
        """Returns the seconds of a prompt of ``tokens`` without prefix, utilisation held beyond."""
        return self._along(self._pieces, tokens)

    def _along(self, pieces: tuple[Piece, ...], tokens: float) -> float:
        i = bisect_right(self.tokens, tokens)
        low, root, rise, length = pieces[i]
        if i == len(self.tokens):
            share = pairs(tokens, 0, self.window) / pairs(low, 0, self.window)
            return (self.launch_s + root * root) * share - self.launch_s
        root += rise * (tokens - low) / length
        return root * root

    def seconds(self, chunk_tokens: float, prefix_tokens: float) -> float:
        """Returns the seconds that a chunk of new tokens with a prefix adds to a launch.

        The time of the whole length, times the share of (query, key) pairs that belong to the
        chunk; never less than the chunk without its prefix, nor than the roofline. Rises with
        the chunk; with the prefix too but for dips of up to 11 % of launch and chunk below some
        thousand tokens, where launches dominate and a longer whole costs hardly more.
        """
        whole = chunk_tokens + prefix_tokens
        window = self.window
        seconds = self._along(self._pieces, chunk_tokens)
        if window is None:
            reach = whole
            own = chunk_tokens * (prefix_tokens + 0.5 * chunk_tokens)
        else:
            reach = min(whole, chunk_tokens + window)
            own = pairs(chunk_tokens, prefix_tokens, window)
        if prefix_tokens > 0:
            if self.additive:
                shared = self.whole_s(whole) - self.whole_s(prefix_tokens)
            else:
                all_pairs = 0.5 * whole * whole if window is None else pairs(whole, 0, window)
                shared = self._along(self._shared_pieces, whole) * own / all_pairs
            if shared > seconds:
                seconds = shared
        arithmetic = own * self.flop_s_per_pair + chunk_tokens * self.flop_s_per_token
        if arithmetic > seconds:
            seconds = arithmetic
        traffic = reach * self.kv_s_per_token
        return traffic if traffic > seconds else seconds


def _pieces(tokens: tuple[float, ...], root_s: tuple[float, ...]) -> tuple[Piece, ...]:
    """Returns what holds below the first length, between each two, and from the last one on."""
    between = [
        (low, root, higher - root, high - low)
        for (low, root), (high, higher) in pairwise(zip(tokens, root_s, strict=True))
    ]
    return ((0.0, 0.0, 0.0, 1.0), *between, (tokens[-1], root_s[-1], 0.0, 1.0))


def pairs(chunk_tokens: float, prefix_tokens: float, window: int | None) -> float:
    """Returns how many (query, key) pairs causal attention computes for a chunk after a prefix.

    Counted as areas: chunk x (prefix + chunk / 2); with a sliding window every query sees at
    most ``window`` keys.
    """
    if window is None:
        return chunk_tokens * (prefix_tokens + 0.5 * chunk_tokens)
    whole = chunk_tokens + prefix_tokens
    return _within(whole, window) - _within(prefix_tokens, window)


def _within(tokens: float, window: int) -> float:
    if tokens <= window:
        return 0.5 * tokens * tokens
    return 0.5 * window * window + window * (tokens - window)
