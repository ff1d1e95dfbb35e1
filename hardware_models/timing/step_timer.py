"""The seconds of one engine step, in about a microsecond: flat lists, nothing read or fitted."""

from __future__ import annotations

from bisect import bisect_right
from math import floor

from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing.batch_grid import MeasuredMix
from dynosim.hardware_models.timing.graphs import Graphs, graphs_of
from dynosim.hardware_models.timing.mixed import mixed_attention_s
from dynosim.hardware_models.timing.prefill_curve import PrefillCurve
from dynosim.hardware_models.timing.pricing import PricedEngine, price
from dynosim.hardware_models.timing.source import OpSource


class StepTimer:
    """Times the steps of one engine replica (all its GPUs work on each step together).

    step = max(host, GPU) with asynchronous scheduling, else host + GPU;
    host = ``host_step_s`` + ``host_per_sequence_s`` x sequences that sample;
    GPU = ops over new tokens + prefill attention + decode attention + head over logits.

    Prefill and decode attention of one step meet as :func:`~.mixed.mixed_attention_s` says where
    one kernel runs both, else they are added; a step of both takes ``mixed_step_factor`` as long.

    Ops over new tokens run at the size of the captured CUDA graph that the step is padded to; a
    step that replays none takes at least the CPU's time to launch it kernel by kernel. ``graphs``
    are those of decode-only steps and those of steps with prefill.

    Pipeline stages are timed by :class:`~.pipeline.PipelinedStepTimer`.

    Known limits: gaps between the kernels of a graph are one constant per layer.
    """

    __slots__ = (
        "_asynchronous",
        "_curves",
        "_decode_least_s",
        "_decode_token_s",
        "_host_per_sequence_s",
        "_host_s",
        "_launch_s",
        "_least_s",
        "_logit_s",
        "_mixed_factor",
        "_rows",
        "_state_s",
        "_state_s_per_token",
        "_tiles",
        "_token_s",
        "sources",
        "uneven_s",
    )

    sources: tuple[OpSource, ...]
    """Where the seconds of each op come from."""
    uneven_s: list[float] | None
    """By decoding sequences: seconds that a decode-only step takes longer per token by which the
    longest context exceeds the mean; None: not measured."""

    def __init__(
        self,
        priced: PricedEngine,
        graphs: tuple[Graphs, Graphs],
        *,
        host_step_s: float,
        host_per_sequence_s: float,
        asynchronous: bool,
        mixed_step_factor: float = 1.0,
    ) -> None:
        self.sources = priced.sources
        self.uneven_s = priced.uneven_s
        decode, mixed = graphs
        length = len(priced.token_s)
        self._decode_token_s: list[float] = priced.token_s[decode.run_tokens(length)].tolist()
        self._token_s: list[float] = priced.token_s[mixed.run_tokens(length)].tolist()
        self._decode_least_s: list[float] = decode.least_s(length).tolist()
        self._least_s: list[float] = mixed.least_s(length).tolist()
        self._logit_s: list[float] = priced.logit_s.tolist()
        self._rows = priced.attention.decode
        self._tiles = priced.attention.tiles
        self._curves: tuple[tuple[int, PrefillCurve], ...] = priced.attention.prefill
        self._launch_s: float = launch_s(self._curves)
        self._state_s = priced.prefill_state_s
        self._state_s_per_token = priced.prefill_state_s_per_token
        self._host_s = host_step_s
        self._host_per_sequence_s = host_per_sequence_s
        self._asynchronous = asynchronous
        self._mixed_factor = mixed_step_factor

    @classmethod
    def compile(cls, engine: ResolvedEngine) -> StepTimer:
        """Returns the timer of a resolved engine; UserError where something has no price.

        Of data-parallel ranks that step together it times steps in which all have equal batches;
        :class:`~.data_parallel.DataParallelTimer` times any.
        """
        return cls.of_priced(
            engine, price(engine).balanced(engine.ranks_in_step), graphs_of(engine)
        )

    @classmethod
    def of_priced(
        cls, engine: ResolvedEngine, priced: PricedEngine, graphs: tuple[Graphs, Graphs]
    ) -> StepTimer:
        """Returns the timer of an engine whose ops cost what ``priced`` says."""
        backend = engine.backend
        if engine.args.pipeline_parallel_size > 1:
            # Stages are timed by a subclass.
            from dynosim.hardware_models.timing.pipeline import PipelinedStepTimer

            return PipelinedStepTimer.of(engine, priced, graphs)
        if engine.speculation is not None:
            from dynosim.hardware_models.timing.speculation import SpeculativeStepTimer

            return SpeculativeStepTimer.of(engine, priced, graphs)
        return cls(
            priced,
            graphs,
            host_step_s=backend.host_step_s,
            host_per_sequence_s=backend.host_per_sequence_s,
            asynchronous=backend.asynchronous_scheduling,
            mixed_step_factor=backend.mixed_step_factor,
        )

    def prefill_attention_s(self, chunk_tokens: int, prefix_tokens: int) -> float:
        """Returns attention seconds that one prefill chunk adds to a step, over all layers.

        Shards work in parallel. :meth:`step_s` adds the launch that all chunks share.
        """
        seconds = self._state_s + self._state_s_per_token * chunk_tokens
        for layers, curve in self._curves:
            seconds += layers * curve.seconds(chunk_tokens, prefix_tokens)
        return seconds

    def step_s(
        self,
        new_tokens: int,
        num_logits: int,
        prefill_attention_s: float,
        num_decode: int,
        context_tokens: float,
    ) -> float:
        """Returns the seconds of one step.

        ``prefill_attention_s`` is the sum of :meth:`prefill_attention_s` over its chunks.
        ``new_tokens`` counts prefill chunks and one per decoding sequence, ``num_logits`` the
        sequences that sample; ``num_decode`` sequences decode over ``context_tokens`` in sum.
        IndexError beyond the compiled token budget plus sequences.
        """
        if num_decode == new_tokens:
            gpu, least = self._decode_token_s[new_tokens], self._decode_least_s[new_tokens]
        else:
            gpu, least = self._token_s[new_tokens], self._least_s[new_tokens]
            prefill_attention_s += self._launch_s
        gpu += self._logit_s[num_logits]
        if num_decode:
            knots, seconds, slope = self._rows[num_decode]
            i = bisect_right(knots, context_tokens) - 1
            decode_s = seconds[i] + slope[i] * (context_tokens - knots[i])
            if prefill_attention_s > 0.0:
                if self._tiles is not None:
                    gpu += self._mixed_s(
                        prefill_attention_s, new_tokens, decode_s, num_decode, context_tokens
                    )
                else:
                    gpu += prefill_attention_s + decode_s
                gpu *= self._mixed_factor
            else:
                gpu += decode_s
        else:
            gpu += prefill_attention_s
        if gpu < least:
            gpu = least
        host = self._host_s + self._host_per_sequence_s * num_logits
        if self._asynchronous:
            return gpu if gpu > host else host
        return gpu + host

    def _mixed_s(
        self,
        prefill_s: float,
        new_tokens: int,
        decode_s: float,
        num_decode: int,
        context_tokens: float,
    ) -> float:
        """Returns attention seconds of a step whose parts run in one kernel; states only add."""
        prefill_tokens = new_tokens - num_decode
        states_s = 0.0
        if self._state_s:
            # The states of one chunk; those of further chunks in the step stay with attention.
            prefill_states_s = self._state_s + self._state_s_per_token * prefill_tokens
            decode_states_s = self._rows.constant_s(num_decode)
            prefill_s -= prefill_states_s
            decode_s -= decode_states_s
            states_s = prefill_states_s + decode_states_s
        if isinstance(self._tiles, MeasuredMix):
            return states_s + self._tiles.seconds(
                prefill_s, prefill_tokens, num_decode, context_tokens
            )
        return states_s + mixed_attention_s(
            prefill_s,
            decode_s,
            num_decode=num_decode,
            decode_context_tokens=context_tokens,
            prefill_tokens=prefill_tokens,
            tiles=self._tiles,
        )

    def decode_line(self, num_decode: int, context_tokens: float) -> tuple[float, float, float]:
        """Returns (seconds, slope_s_per_token, context_limit) of decode-only steps.

        A step of ``num_decode`` sequences takes seconds + slope x (S - context_tokens) for every
        whole S in [context_tokens, context_limit]; the same to rounding as :meth:`step_s`.
        """
        knots, seconds, slopes = self._rows[num_decode]
        i = bisect_right(knots, context_tokens) - 1
        slope = slopes[i]
        limit = knots[i + 1] if i + 1 < len(knots) else float(1 << 53)
        gpu = self._decode_token_s[num_decode] + self._logit_s[num_decode]
        gpu += seconds[i] + slope * (context_tokens - knots[i])
        host = self._host_s + self._host_per_sequence_s * num_decode
        least = self._decode_least_s[num_decode]
        after = host
        if self._asynchronous:
            after = 0.0
            if host > least:
                least = host
        if gpu >= least:
            return gpu + after, slope, limit
        return at_least(least, after, (gpu, slope, limit), context_tokens)


def launch_s(curves: tuple[tuple[int, PrefillCurve], ...]) -> float:
    """Returns the seconds of the launches that all chunks of a step share, over all layers."""
    return sum((layers * curve.launch_s for layers, curve in curves), start=0.0)


Line = tuple[float, float, float]
"""Seconds at some context, slope in seconds per token, context up to which it holds."""


def at_least(least: float, after: float, line: Line, context_tokens: float) -> Line:
    """Returns the line raised to ``least`` and shifted by ``after``, from ``context_tokens`` on."""
    seconds, slope, limit = line
    if seconds >= least:
        return seconds + after, slope, limit
    if seconds + slope * (limit - context_tokens) <= least:
        return least + after, 0.0, limit
    # Kernels overtake the CPU inside this piece: the line is flat up to there.
    return least + after, 0.0, context_tokens + floor((least - seconds) / slope)
