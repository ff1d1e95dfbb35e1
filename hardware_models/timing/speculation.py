"""Steps of an engine that speculates: verify the drafts of the last step, then draft anew."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.speculation import figure, is_asynchronous
from dynosim.hardware_models.timing.decode_rows import DecodeRow, DecodeRows
from dynosim.hardware_models.timing.draft import PricedDraft, price_draft
from dynosim.hardware_models.timing.graphs import Graphs
from dynosim.hardware_models.timing.ops import decompose
from dynosim.hardware_models.timing.pricing import PricedEngine
from dynosim.hardware_models.timing.source import OpSource
from dynosim.hardware_models.timing.step_timer import StepTimer, at_least, launch_s
from dynosim.hardware_models.timing.verification import verification_rows


class _Decode(NamedTuple):
    """A batch's decodes by total context: seconds at the knots, of target and draft together.

    ``fixed_s`` is all else of a decode-only step on the GPU.
    """

    fixed_s: float
    context_tokens: FloatArray
    seconds: FloatArray
    target_s: FloatArray


class SpeculativeStepTimer(StepTimer):
    """Times the steps of one engine replica that verifies k drafts per sequence.

    GPU = target over new tokens, of which each decode has k + 1, and over as many logits
    + attention of k + 1 queries a sequence + drafting.

    Drafting with a layer or a model: one pass over the step's new tokens, which fills its KV cache,
    k - 1 passes over a token a sequence, a head after each, and the CPU's time before each, since
    they depend on what was accepted. Drafting by n-gram lookup is the host's work, per sequence; it
    needs the tokens themselves, so that scheduling is not asynchronous (vLLM turns it off).

    A verification also takes the CPU's time to read back what was accepted and to lay out what
    follows, which nothing hides.

    Known limits: chains of drafts, no trees; n-gram lookup drafts for every sequence in every step.
    """

    __slots__ = (
        "_decodes",
        "_draft",
        "_draft_plain",
        "_draft_rows",
        "_drafts",
        "_lookup_s",
        "_verification_per_sequence_s",
        "_verification_s",
    )

    def __init__(
        self,
        priced: PricedEngine,
        graphs: tuple[Graphs, Graphs],
        *,
        drafts: int,
        rows: DecodeRows,
        draft: PricedDraft | None,
        draft_rows: DecodeRows | None,
        host_step_s: float,
        host_per_sequence_s: float,
        asynchronous: bool,
    ) -> None:
        super().__init__(
            priced,
            graphs,
            host_step_s=host_step_s,
            host_per_sequence_s=host_per_sequence_s,
            asynchronous=asynchronous and draft is not None,
        )
        self._drafts = drafts
        self._rows = rows
        self._draft = draft
        self._draft_rows = draft_rows
        self._verification_s = figure("verification_s")
        self._verification_per_sequence_s = figure("verification_per_sequence_s")
        self._lookup_s = 0.0
        self._decodes: dict[int, _Decode] = {}
        if draft is None:
            self._lookup_s = figure("ngram_host_per_sequence_s")
        else:
            self._launch_s += launch_s(draft.attention.prefill)
            self.sources = tuple(dict.fromkeys((*self.sources, *draft.sources)))
        waits = OpSource(
            "verification", "transferred", "CPU time around one on vLLM 0.8 to 0.11, H100"
        )
        self.sources = (*self.sources, waits)

    @classmethod
    def of(
        cls, engine: ResolvedEngine, priced: PricedEngine, graphs: tuple[Graphs, Graphs]
    ) -> StepTimer:
        """Returns the timer of an engine that speculates."""
        speculation, backend = engine.speculation, engine.backend
        assert speculation is not None, "the engine does not speculate"
        queries, gpu = speculation.query_tokens, engine.gpu
        draft = draft_rows = None
        if speculation.draft is not None:
            draft = price_draft(engine, graphs[0])
            drafting = ResolvedEngine(
                args=engine.args, model=speculation.draft, gpu=gpu, backend=backend
            )
            ops = decompose(drafting).attention
            draft_rows = verification_rows(gpu, draft.attention, ops, queries)
        ops = decompose(engine).attention
        return cls(
            priced,
            graphs,
            drafts=speculation.num_tokens,
            rows=verification_rows(gpu, priced.attention, ops, queries),
            draft=draft,
            draft_rows=draft_rows,
            host_step_s=backend.host_step_s,
            host_per_sequence_s=backend.host_per_sequence_s,
            asynchronous=backend.asynchronous_scheduling and is_asynchronous(backend.name),
        )

    def prefill_attention_s(self, chunk_tokens: int, prefix_tokens: int) -> float:
        seconds = super().prefill_attention_s(chunk_tokens, prefix_tokens)
        if self._draft is not None:
            for layers, curve in self._draft.attention.prefill:
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
        verified = num_decode * (self._drafts + 1)
        sequences = num_logits - verified + num_decode
        if verified == new_tokens:
            gpu, least = self._decode_token_s[new_tokens], self._decode_least_s[new_tokens]
        else:
            gpu, least = self._token_s[new_tokens], self._least_s[new_tokens]
            prefill_attention_s += self._launch_s
        gpu += self._logit_s[num_logits] + self._draft_s(new_tokens, sequences)
        gpu += prefill_attention_s
        if num_decode:
            prompts = new_tokens - verified
            gpu += self._decode_attention_s(
                prefill_attention_s, prompts, num_decode, context_tokens
            )
            gpu += self._verified_s(num_decode)
        if gpu < least:
            gpu = least
        host = self._host_for(sequences, num_decode)
        if self._asynchronous:
            return gpu if gpu > host else host
        return gpu + host

    def _decode_attention_s(
        self, prefill_s: float, prefill_tokens: int, num_decode: int, context_tokens: float
    ) -> float:
        """Returns what decodes add to the attention of a step's prompts; drafts' included."""
        decode = self._decode(num_decode)
        total_s = float(np.interp(context_tokens, decode.context_tokens, decode.seconds))
        if prefill_s <= 0.0 or self._tiles is None:
            return total_s
        target_s = float(np.interp(context_tokens, decode.context_tokens, decode.target_s))
        tokens = prefill_tokens + num_decode
        mixed_s = self._mixed_s(prefill_s, tokens, target_s, num_decode, context_tokens)
        return mixed_s - prefill_s + total_s - target_s

    def decode_steps_s(self, num_decode: int, context_tokens: IntArray) -> FloatArray:
        """Returns the seconds of decode-only steps of ``num_decode`` sequences.

        ``context_tokens`` is what attention reads in each of them, summed over sequences.
        """
        decode = self._decode(num_decode)
        gpu = decode.fixed_s + np.interp(context_tokens, decode.context_tokens, decode.seconds)
        least, after = self._bounds(num_decode)
        return np.maximum(gpu, least) + after

    def decode_line(self, num_decode: int, context_tokens: float) -> tuple[float, float, float]:
        decode = self._decode(num_decode)
        knots, seconds = decode.context_tokens, decode.seconds
        i = bisect_right(knots.tolist(), context_tokens) - 1
        slope, limit = 0.0, float(1 << 53)
        if i + 1 < len(knots):
            slope = float((seconds[i + 1] - seconds[i]) / (knots[i + 1] - knots[i]))
            limit = float(knots[i + 1])
        gpu = decode.fixed_s + float(seconds[i]) + slope * (context_tokens - float(knots[i]))
        least, after = self._bounds(num_decode)
        return at_least(least, after, (gpu, slope, limit), context_tokens)

    def _bounds(self, num_decode: int) -> tuple[float, float]:
        """Returns the least seconds of a decode-only step, and those that come after the GPU's."""
        least = self._decode_least_s[num_decode * (self._drafts + 1)]
        host = self._host_for(num_decode, num_decode)
        return (max(least, host), 0.0) if self._asynchronous else (least, host)

    def _host_for(self, sequences: int, num_decode: int) -> float:
        lookup_s = self._lookup_s * num_decode
        return self._host_s + self._host_per_sequence_s * sequences + lookup_s

    def _verified_s(self, num_decode: int) -> float:
        return self._verification_s + self._verification_per_sequence_s * num_decode

    def _draft_s(self, new_tokens: int, sequences: int) -> float:
        draft = self._draft
        if draft is None:
            return 0.0
        return float(draft.first_s[new_tokens] + draft.again_s[sequences])

    def _decode(self, num_decode: int) -> _Decode:
        decode = self._decodes.get(num_decode)
        if decode is None:
            decode = self._decodes[num_decode] = self._build(num_decode)
        return decode

    def _build(self, num_decode: int) -> _Decode:
        tokens = num_decode * (self._drafts + 1)
        fixed_s = self._decode_token_s[tokens] + self._logit_s[tokens]
        fixed_s += self._draft_s(tokens, num_decode) + self._verified_s(num_decode)
        target = self._rows[num_decode]
        parts: list[tuple[int, DecodeRow]] = []
        if self._draft is not None and self._draft_rows is not None:
            plain = self._draft.attention.decode[num_decode]
            parts = [(1, self._draft_rows[num_decode]), (self._drafts - 1, plain)]
        knots = sorted({c for row in (target, *(r for _, r in parts)) for c in row.context_tokens})
        context = np.array(knots)
        target_s = np.interp(context, target.context_tokens, target.seconds)
        seconds = target_s + sum(
            passes * np.interp(context, row.context_tokens, row.seconds) for passes, row in parts
        )
        return _Decode(fixed_s, context, np.asarray(seconds), target_s)
