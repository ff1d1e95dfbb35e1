"""Steps of an engine whose layers are cut into pipeline stages."""

from __future__ import annotations

from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing.graphs import Graphs
from dynosim.hardware_models.timing.pricing import PricedEngine
from dynosim.hardware_models.timing.step_timer import StepTimer, at_least


class PipelinedStepTimer(StepTimer):
    """Times one round of an engine's batches through all stages.

    vLLM keeps up to one batch per stage in flight and a sequence is in one of them. A round here
    is one step of everything that runs: its decoding sequences, and each prefill chunk, are taken
    to sit in as many batches as there are stages, or fewer where there are not that many.
    With fewer, stages idle and a round takes one batch's way through all of them; with one batch
    per stage it takes as long as the slowest stage works on all batches. So a pipeline needs as
    many batches as stages before it is busy (vllm issue 7202), and splits no sequence's latency.

    Known limits: batches are taken to be of equal size (vLLM's scheduler puts whatever waits into
    the next one; issues 28270 and 41682 report rounds with all sequences in one); the chunks of one
    step go through as one batch, so prefills of different requests do not follow each other through
    the stages.
    """

    __slots__ = ("_batch", "_even", "_imbalance", "_stages")

    def __init__(
        self,
        priced: PricedEngine,
        graphs: tuple[Graphs, Graphs],
        *,
        stages: int,
        num_layers: int,
        host_step_s: float,
        host_per_sequence_s: float,
        asynchronous: bool,
        mixed_step_factor: float = 1.0,
    ) -> None:
        super().__init__(
            priced,
            graphs,
            host_step_s=host_step_s,
            host_per_sequence_s=host_per_sequence_s,
            asynchronous=asynchronous,
        )
        self._batch = StepTimer(
            priced,
            graphs,
            host_step_s=0.0,
            host_per_sequence_s=0.0,
            asynchronous=True,
            mixed_step_factor=mixed_step_factor,
        )
        self._stages = stages
        # The longest stage over the mean one.
        self._imbalance = -(-num_layers // stages) * stages / num_layers
        self._even = num_layers % stages == 0

    @classmethod
    def of(
        cls, engine: ResolvedEngine, priced: PricedEngine, graphs: tuple[Graphs, Graphs]
    ) -> StepTimer:
        """Returns the timer of an engine with several stages."""
        backend = engine.backend
        return cls(
            priced,
            graphs,
            stages=engine.args.pipeline_parallel_size,
            num_layers=engine.model.num_layers,
            host_step_s=backend.host_step_s,
            host_per_sequence_s=backend.host_per_sequence_s,
            asynchronous=backend.asynchronous_scheduling,
            mixed_step_factor=backend.mixed_step_factor,
        )

    def step_s(
        self,
        new_tokens: int,
        num_logits: int,
        prefill_attention_s: float,
        num_decode: int,
        context_tokens: float,
    ) -> float:
        prefill_tokens = new_tokens - num_decode
        batches = min(self._stages, num_decode + (prefill_tokens > 0))
        decodes, context = self._shares(num_decode, context_tokens, batches)
        logits = -(-num_logits // batches)
        batch_s = self._batch.step_s(
            prefill_tokens + decodes, logits, prefill_attention_s, decodes, context
        )
        factor, offset_s = self._round(batches, logits)
        least, after = self._host(num_logits, batches)
        return max(batch_s * factor + offset_s, least) + after

    def decode_line(self, num_decode: int, context_tokens: float) -> tuple[float, float, float]:
        batches = min(self._stages, num_decode)
        decodes, context = self._shares(num_decode, context_tokens, batches)
        seconds, slope, limit = self._batch.decode_line(decodes, context)
        share = decodes / num_decode
        factor, offset_s = self._round(batches, decodes)
        least, after = self._host(num_decode, batches)
        line = (seconds * factor + offset_s, slope * factor * share, limit / share)
        return at_least(least, after, line, context_tokens)

    def _shares(self, num_decode: int, context_tokens: float, batches: int) -> tuple[int, float]:
        """Returns sequences of the largest batch, and their tokens of context."""
        decodes = -(-num_decode // batches)
        return decodes, context_tokens * decodes / num_decode if num_decode else 0.0

    def _round(self, batches: int, logits: int) -> tuple[float, float]:
        """Returns (factor, offset_s): a round takes factor x one batch's way plus offset.

        With a batch in each stage the longest stage sets the pace. The head's stage is the longest
        where layers divide evenly; else it has fewer layers and hides behind the others.
        """
        if batches < self._stages:
            return 1.0, 0.0
        head_s = self._logit_s[logits]
        if self._even:
            return 1.0, (self._stages - 1) * head_s
        return self._imbalance, head_s * (1.0 - self._imbalance)

    def _host(self, num_logits: int, batches: int) -> tuple[float, float]:
        """Returns the least seconds of a round, and seconds that come after the GPUs'."""
        host = self._host_s * batches + self._host_per_sequence_s * num_logits
        return (host, 0.0) if self._asynchronous else (0.0, host)
