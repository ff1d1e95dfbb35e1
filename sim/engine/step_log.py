"""When every step of an engine ended, and which steps gave which request its tokens."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

import numpy as np

from dynosim.hardware_models.arrays import BoolArray, FloatArray, IntArray
from dynosim.sim.engine.step_times import StepTimes

# Rows are packed as bytes: a third of the time that an array of numbers takes to grow.
_RUN = Struct("=4d5i3iqd")
_STINT = Struct("=3q")
_VERIFIED = Struct("=3q")
_HANDED_OVER = Struct("=qd")
_FLOATS = ("start_s", "dt_s", "growth_s", "counts")
_COUNTS = ("num_decode", "num_first", "used_blocks", "running", "waiting")
_SHAPES = ("prefill_tokens", "blocked", "held_by", "context_tokens", "prefill_attention_s")
_TYPES = ("f8",) * len(_FLOATS) + ("i4",) * len(_COUNTS) + ("i4", "i4", "i4", "i8", "f8")
_ROW = np.dtype(list(zip((*_FLOATS, *_COUNTS, *_SHAPES), _TYPES, strict=True)))
_NUM_DECODE = 4
_pack_run = _RUN.pack
_pack_stint = _STINT.pack


class StepLog:
    """Steps as runs, tokens as stints of steps, while the engine runs.

    A request emits one token at the end of every step of its stints: one stint from its first
    token to its last, more if it was preempted between. That is every token's time, at a cost
    that grows with requests and not with tokens. A *pause* is a step that whoever was decoding
    sits out: of a stint it counts only as the first step.

    With speculative decoding the steps of a stint but its first may give several tokens; how many
    they gave is kept beside; so are first tokens that other engines computed.
    """

    __slots__ = (
        "_handed_over",
        "_pauses",
        "_runs",
        "_stints",
        "_verified",
        "_void",
        "num_steps",
    )

    def __init__(self) -> None:
        self.num_steps = 0
        self._pauses = array("q")
        self._runs = bytearray()
        self._stints = bytearray()
        self._verified = bytearray()
        self._handed_over = bytearray()
        # Of requests whose attempts came to nothing: the bytes of stints, of verifications and of
        # hand-overs that were written before.
        self._void: dict[int, tuple[int, int, int]] = {}

    def run(
        self,
        start_s: float,
        dt_s: float,
        growth_s: float,
        count: int,
        num_decode: int,
        num_first: int,
        used_blocks: int,
        running: int,
        waiting: int,
        prefill_tokens: int = 0,
        blocked: int = 0,
        held_by: int = 0,
        context_tokens: int = 0,
        prefill_attention_s: float = 0.0,
    ) -> None:
        """Adds a run, as described by :class:`Steps`."""
        self._runs += _pack_run(
            start_s,
            dt_s,
            growth_s,
            count,
            num_decode,
            num_first,
            used_blocks,
            running,
            waiting,
            prefill_tokens,
            blocked,
            held_by,
            context_tokens,
            prefill_attention_s,
        )
        self.num_steps += count

    def runs(
        self,
        start_s: FloatArray,
        dt_s: FloatArray,
        used_blocks: IntArray,
        num_decode: int,
        running: int,
        waiting: int,
        context_tokens: IntArray,
        blocked: int,
        held_by: int,
    ) -> None:
        """Adds runs of one step each, without prompts."""
        rows = np.zeros(len(start_s), dtype=_ROW)
        rows["start_s"], rows["dt_s"], rows["counts"] = start_s, dt_s, 1.0
        rows["num_decode"], rows["used_blocks"] = num_decode, used_blocks
        rows["running"], rows["waiting"] = running, waiting
        rows["blocked"], rows["held_by"] = blocked, held_by
        rows["context_tokens"] = context_tokens
        self._runs += rows.tobytes()
        self.num_steps += len(rows)

    def verified(self, request: int, tokens: int, steps: int) -> None:
        """Notes that verifications in so many steps gave ``request`` these tokens."""
        self._verified += _VERIFIED.pack(request, tokens, steps)

    def handed_over(self, request: int, time_s: float) -> None:
        """Notes that ``request`` came with its first token, which clients get now."""
        self._handed_over += _HANDED_OVER.pack(request, time_s)

    def stint(self, request: int, first_step: int, end_step: int) -> None:
        """Adds one token for ``request`` at the end of every step in [first_step, end_step).

        Pauses are left out, unless the stint begins with one.
        """
        self._stints += _pack_stint(request, first_step, end_step)

    def void(self, request: int) -> None:
        """Makes all tokens that ``request`` had here so far none of its own."""
        self._void[request] = len(self._stints), len(self._verified), len(self._handed_over)

    def pause(self) -> None:
        """Makes the last run, of one step, one that its decoding sequences sit out."""
        self._pauses.append(len(self._runs) // _RUN.size - 1)

    def interrupt(self, request: int, first_step: int) -> None:
        """Ends the stint of a decoding ``request`` before the coming step.

        Steps that it sat out since its last token are not its own.
        """
        end = self.num_steps
        run = len(self._runs) // _RUN.size - 1
        for pause in reversed(self._pauses):
            if pause != run or end == first_step + 1:
                break
            columns = list(_RUN.unpack_from(self._runs, run * _RUN.size))
            columns[_NUM_DECODE] -= 1
            _RUN.pack_into(self._runs, run * _RUN.size, *columns)
            end -= 1
            run -= 1
        self.stint(request, first_step, end)

    @property
    def num_runs(self) -> int:
        """How many runs there are so far."""
        return len(self._runs) // _RUN.size

    def runs_from(self, run: int) -> Iterator[tuple[float, float, float, float, int, int]]:
        """Yields (start_s, dt_s, growth_s, count, later, first) of ``run`` and those after it.

        ``later`` answers go on in each step, ``first`` ones begin.

        Right as long as no pause of theirs is still to be taken back by :meth:`interrupt`, which
        changes no output.
        """
        pauses = self._pauses_from(run)
        rows = _RUN.iter_unpack(bytes(self._runs[run * _RUN.size :]))
        for number, (start_s, dt_s, growth_s, count, decode, first, *_) in enumerate(rows, run):
            yield start_s, dt_s, growth_s, count, 0 if number in pauses else decode, first

    def _pauses_from(self, run: int) -> set[int]:
        first = bisect_left(self._pauses, run)
        return set(self._pauses[first:])

    def steps(self) -> Steps:
        """Returns the runs so far."""
        rows = np.frombuffer(self._runs, dtype=_ROW)
        is_pause = np.zeros(len(rows), dtype=np.bool_)
        is_pause[np.array(self._pauses, dtype=np.int64)] = True
        floats = (rows[name].copy() for name in _FLOATS)
        counts = (rows[name].copy() for name in (*_COUNTS, *_SHAPES))
        return Steps(is_pause, *floats, *counts)

    def forget_runs(self) -> None:
        """Lets go of the runs, of which somebody has the :class:`Steps`."""
        self._runs = bytearray()

    def stints(self) -> IntArray:
        """Returns (request, first_step, end_step) rows, one per stint, in order of their ends."""
        return self._valid(self._stints, 0)

    def hand_overs(self) -> tuple[IntArray, FloatArray]:
        """Returns the requests that came with their first token, and when clients got it."""
        rows = np.frombuffer(self._handed_over, dtype=[("request", "i8"), ("time_s", "f8")])
        if self._void:
            rows = rows[self._are_valid(rows["request"], 2, _HANDED_OVER.size)]
        return rows["request"].copy(), rows["time_s"].copy()

    def verifications(self) -> IntArray:
        """Returns (request, tokens, steps) rows of speculative decoding."""
        return self._valid(self._verified, 1)

    def _valid(self, packed: bytearray, which: int) -> IntArray:
        """Returns rows but those of requests that were voided after them."""
        rows = np.frombuffer(packed, dtype=np.int64).reshape(-1, 3)
        if not self._void:
            return rows.copy()
        return np.asarray(rows[self._are_valid(rows[:, 0], which, _STINT.size)])

    def _are_valid(self, requests: IntArray, which: int, row_bytes: int) -> BoolArray:
        """Returns which rows, of these requests in order, were not voided after them."""
        ends = {request: written[which] // row_bytes for request, written in self._void.items()}
        from_row = np.array([ends.get(request, 0) for request in requests.tolist()])
        return np.asarray(np.arange(len(requests)) >= from_row)


@dataclass(frozen=True)
class Steps(StepTimes):
    """An engine's steps, with the state they left and the work they did.

    KV blocks held and requests running and waiting are those at the run's end. Every step computes
    ``prefill_tokens`` of prompts, whose attention alone took ``prefill_attention_s``. Before the
    first one those who decode had ``context_tokens`` in sum, and ``num_decode`` more before each
    further one. When the batch was formed ``blocked`` requests could not enter, the next of them
    for want of ``held_by`` (:mod:`~dynosim.sim.engine.holds`).
    """

    used_blocks: IntArray
    running: IntArray
    waiting: IntArray
    prefill_tokens: IntArray
    blocked: IntArray
    held_by: IntArray
    context_tokens: IntArray
    prefill_attention_s: FloatArray
