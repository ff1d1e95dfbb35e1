"""What the API servers' processors add before an engine and behind it.

Each engine, or data-parallel rank, has processes of its own (vLLM's ``--api-server-count``) that
take requests in, one after the other, and write the tokens of every engine step to their streams.
Neither holds the engine up: a front-end slower than its engine grows a queue, and answers come
late. Requests and tokens are taken to queue apart from each other (tokenisers run in their own
thread), and work to spread evenly over the processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.sim.engine.step_log import StepLog
from dynosim.sim.engine.step_times import StepTimes

_AT_ONCE = 1 << 16
"""Runs whose delivery is worked out at once: what that takes beside the result stays small."""


@dataclass(frozen=True, kw_only=True)
class Frontend:
    """Processor seconds of ``servers`` API processes in front of each engine.

    ``request_s`` and ``input_token_s`` are spent on a request before an engine sees it,
    ``output_s`` on each answer that an engine step goes on with, before clients see the step. Where
    streams are written every ``stream_interval`` tokens, those between take ``detokenise_s`` of it
    each: what a step takes is then the mean, as if streams were written evenly in turn.
    """

    request_s: float = 0.0
    input_token_s: float = 0.0
    output_s: float = 0.0
    detokenise_s: float = 0.0
    stream_interval: int = 1
    servers: int = 1

    @property
    def later_output_s(self) -> float:
        """The mean seconds that a token after the first takes."""
        kept_s = min(self.detokenise_s, self.output_s)
        return kept_s + (self.output_s - kept_s) / self.stream_interval

    def writing_s(self, steps: StepTimes) -> FloatArray:
        """Returns the seconds that all processes together take for each step of every run."""
        later = np.where(steps.is_pause, 0, steps.num_decode)
        work_s = later * self.later_output_s + steps.num_first * self.output_s
        return np.asarray(work_s / self.servers, dtype=np.float64)

    def entered_s(self, sent_s: FloatArray, input_tokens: IntArray, num_engines: int) -> FloatArray:
        """Returns when requests sent at ascending times have been taken in, in that order."""
        work_s = (self.request_s + self.input_token_s * input_tokens) / (self.servers * num_engines)
        if not work_s.any():
            return sent_s
        # Lindley's recursion, end = max(end before, sent) + work, unrolled.
        ends_s = np.cumsum(work_s)
        return np.asarray(ends_s + np.maximum.accumulate(sent_s - (ends_s - work_s)))

    def delivered(self, steps: StepTimes) -> StepTimes:
        """Returns the steps as clients see them: each ends when its last answer was written.

        A run becomes up to four: its first step, those that leave as fast as they are written, the
        one at which the writer has caught up, and those that follow at the engine's pace.
        """
        if not self.output_s or not len(steps.counts):
            return steps
        work_s = self.writing_s(steps)
        ends_s = _ends_s(steps, work_s)
        before_s = np.concatenate((steps.start_s[:1], ends_s[:-1]))
        slices = [slice(i, i + _AT_ONCE) for i in range(0, len(steps.counts), _AT_ONCE)]
        return StepTimes.joined(
            [_as_written(steps.part(runs), work_s[runs], before_s[runs]) for runs in slices]
        )


IDLE = Frontend()
"""Takes no time."""


class Intake:
    """The same as :meth:`Frontend.entered_s`, request by request."""

    def __init__(self, frontend: Frontend, num_engines: int) -> None:
        servers = frontend.servers * num_engines
        self._request_s = frontend.request_s / servers
        self._input_token_s = frontend.input_token_s / servers
        self._free_s = -math.inf

    def enter(self, now_s: float, input_tokens: int) -> float:
        """Returns when a request sent now has been taken in."""
        work_s = self._request_s + self._input_token_s * input_tokens
        self._free_s = max(self._free_s, now_s) + work_s
        return self._free_s


class Writer:
    """The same as :meth:`Frontend.delivered` while one engine runs."""

    def __init__(self, frontend: Frontend, log: StepLog) -> None:
        self._first_s = frontend.output_s / frontend.servers
        self._later_s = frontend.later_output_s / frontend.servers
        self._log = log
        self._num_runs = 0
        self._free_s = -math.inf

    def written_s(self, now_s: float) -> float:
        """Returns when clients see the engine's last step, which ended now."""
        free_s = self._free_s
        for start_s, dt_s, growth_s, count, later, first in self._log.runs_from(self._num_runs):
            work_s = later * self._later_s + first * self._first_s
            end_s = start_s + count * dt_s + 0.5 * count * (count - 1) * growth_s
            free_s = max(free_s + count * work_s, start_s + dt_s + count * work_s, end_s + work_s)
        self._free_s = free_s
        self._num_runs = self._log.num_runs
        return max(free_s, now_s)


class LiveFrontend:
    """The front-end of a closed loop, where what clients see decides when they send.

    ``log_of`` gives the log of the engine that a request went to.
    """

    def __init__(
        self,
        frontend: Frontend,
        frontend_s: float,
        num_engines: int,
        log_of: Callable[[int], StepLog],
    ) -> None:
        self._frontend = frontend
        self._frontend_s = frontend_s
        self._intake = Intake(frontend, num_engines)
        self._log_of = log_of
        self._writers: dict[int, Writer] = {}

    def arrives_s(self, sent_s: float, input_tokens: int) -> float:
        """Returns when a request sent now arrives at an engine."""
        return self._intake.enter(sent_s, input_tokens) + self._frontend_s

    def written_s(self, request: int, now_s: float) -> float:
        """Returns when the client of ``request`` has the token of the step that ends now."""
        if not self._frontend.output_s:
            return now_s
        log = self._log_of(request)
        writer = self._writers.get(id(log))
        if writer is None:
            writer = self._writers[id(log)] = Writer(self._frontend, log)
        return writer.written_s(now_s)


def _ends_s(steps: StepTimes, work_s: FloatArray) -> FloatArray:
    """Returns when the last step of every run has been written.

    A step is written once it has ended and the one before it is written. The ends of a run's steps
    are convex in their number, so only its first and last can be what its last one waited for.
    """
    all_s = steps.counts * work_s
    alone_s = np.maximum(
        steps.start_s + steps.dt_s + all_s, steps.start_s + steps.durations_s + work_s
    )
    sums_s = np.cumsum(all_s)
    return np.asarray(sums_s + np.maximum.accumulate(alone_s - sums_s))


def _as_written(steps: StepTimes, work_s: FloatArray, before_s: FloatArray) -> StepTimes:
    """Returns the steps of runs that begin to be written behind ``before_s``."""
    dt_s, growth_s, counts = steps.dt_s, steps.growth_s, steps.counts
    first_end_s = steps.start_s + dt_s
    begins_s = np.maximum(before_s, first_end_s)
    lag_s = begins_s - first_end_s
    behind = _steps_behind(lag_s, work_s, dt_s, growth_s, counts)
    # Without a lag the second step already follows at the engine's pace.
    in_pace = (lag_s == 0.0) & (behind == 1.0)
    caught_up = np.where(in_pace, 1.0, np.minimum(behind + 1.0, counts))
    caught_up_s = np.where(
        in_pace, begins_s, first_end_s + (caught_up - 1.0) * (dt_s + 0.5 * caught_up * growth_s)
    )
    written_s = begins_s + behind * work_s
    zeros = np.zeros(len(counts))
    start_s = [before_s, begins_s + work_s, written_s, caught_up_s + work_s]
    gaps_s = [
        begins_s + work_s - before_s,
        work_s,
        caught_up_s + work_s - written_s,
        dt_s + caught_up * growth_s,
    ]
    return _joined(
        steps,
        np.stack(start_s),
        np.stack(gaps_s),
        np.stack([zeros, zeros, zeros, growth_s]),
        np.stack([zeros + 1.0, behind - 1.0, caught_up - behind, counts - caught_up]),
    )


def _steps_behind(
    lag_s: FloatArray,
    work_s: FloatArray,
    dt_s: FloatArray,
    growth_s: FloatArray,
    counts: FloatArray,
) -> FloatArray:
    """Returns how many of a run's first steps are written one straight after the other.

    The i-th step after the first is if i (dt + (i + 1) growth / 2 - work) <= lag.
    """
    gain_s = dt_s + 0.5 * growth_s - work_s
    root = np.sqrt(gain_s * gain_s + 2.0 * growth_s * lag_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Of the two forms of a root, the one whose terms have one sign.
        more = np.where(gain_s > 0.0, 2.0 * lag_s / (gain_s + root), (root - gain_s) / growth_s)
    more = np.where((gain_s <= 0.0) & (growth_s == 0.0), np.inf, more)
    return np.asarray(np.minimum(np.floor(more) + 1.0, counts))


def _joined(
    steps: StepTimes,
    start_s: FloatArray,
    dt_s: FloatArray,
    growth_s: FloatArray,
    counts: FloatArray,
) -> StepTimes:
    """Returns pieces of runs, rows of one column a run, as runs in order of time."""
    present = counts.T.ravel() > 0.0
    run = np.repeat(np.arange(counts.shape[1]), len(counts))[present]

    def flat(pieces: FloatArray) -> FloatArray:
        return np.asarray(pieces.T.ravel()[present])

    return StepTimes(
        is_pause=steps.is_pause[run],
        start_s=flat(start_s),
        dt_s=flat(dt_s),
        growth_s=flat(growth_s),
        counts=flat(counts),
        num_decode=steps.num_decode[run],
        num_first=steps.num_first[run],
    )
