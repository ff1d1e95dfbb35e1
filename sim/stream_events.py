"""When streams are written that keep tokens back until there are several.

The first token is written at once, then whenever ``interval`` more have come, and what is left with
the last one (vLLM's ``--stream-interval``, vllm-project/vllm pull request 27869).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from dynosim.sim.results import ReplicaLog

_AT_ONCE = 1 << 18
"""Requests' tokens whose writes are worked out at once: memory stays small."""


def event_tokens(num_tokens: int, interval: int) -> IntArray:
    """Returns after which of an answer's tokens, from 1, its stream is written."""
    return np.append(np.arange(1, num_tokens, interval), num_tokens)


def event_gaps_s(log: ReplicaLog, interval: int) -> FloatArray:
    """Returns the gaps between writes of all requests of an engine, each by itself."""
    stints = _Stints(log)
    bounds = np.searchsorted(stints.request_ends, np.arange(0, stints.num_tokens, _AT_ONCE))
    parts = np.split(np.arange(len(stints.request_ends)), np.unique(bounds)[1:])
    gaps_s = [stints.gaps_s(requests, interval) for requests in parts if len(requests)]
    return np.concatenate(gaps_s) if gaps_s else np.empty(0)


class _Stints:
    """The stints of an engine by request, with those tokens that came from other engines."""

    def __init__(self, log: ReplicaLog) -> None:
        self._log = log
        request, first, end = log.stints.T
        counts = log.steps.num_tokens(first, end)
        n = len(log.handed_over)
        # What was handed over is a stint of one token, at a time of its own and before the others.
        request = np.concatenate([log.handed_over, request])
        order = np.argsort(request, kind="stable")
        self._first = np.concatenate([np.zeros(n, np.int64), first])[order]
        self._given_s = np.concatenate([log.handed_over_s, np.full(len(first), np.nan)])[order]
        counts = np.concatenate([np.ones(n, np.int64), counts])[order]
        self._ends = np.cumsum(counts)
        self._starts = self._ends - counts
        is_last = np.append(np.diff(request[order]) != 0, True)[: len(order)]
        self.request_ends = self._ends[is_last]
        self.num_tokens = int(counts.sum())
        pauses = np.cumsum(log.steps.counts)[log.steps.is_pause].astype(np.int64) - 1
        self._pauses = pauses
        self._steps_before_pause = pauses - np.arange(len(pauses))

    def gaps_s(self, requests: IntArray, interval: int) -> FloatArray:
        """Returns the gaps of some requests, numbered as they come here."""
        ends = self.request_ends[requests]
        starts = np.append(0, self.request_ends)[requests]
        events = 1 + -(-(ends - starts - 1) // interval)
        place = np.arange(events.sum()) - np.repeat(np.cumsum(events) - events, events)
        tokens = np.minimum(
            np.repeat(starts, events) + place * interval, np.repeat(ends, events) - 1
        )
        gaps_s = np.diff(self._times_s(tokens))
        return np.asarray(gaps_s[place[1:] > 0])

    def _times_s(self, tokens: IntArray) -> FloatArray:
        """Returns when tokens, numbered over all requests, were delivered."""
        stint = np.searchsorted(self._ends, tokens, side="right")
        ordinal = tokens - self._starts[stint]
        first = self._first[stint]
        # Steps that the request sat out give no token, but for the first of the stint.
        later = first + 1 - np.searchsorted(self._pauses, first + 1) + ordinal - 1
        later += np.searchsorted(self._steps_before_pause, later, side="right")
        step = np.where(ordinal == 0, first, later)
        given_s = self._given_s[stint]
        is_given = ~np.isnan(given_s)
        if is_given.all():
            return given_s
        times_s = self._log.delivered.ends_s(np.where(is_given, self._log.stints[0, 1], step))
        return np.where(is_given, given_s, times_s)
