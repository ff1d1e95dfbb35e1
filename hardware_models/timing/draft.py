"""What drafting costs on the GPU: a pass over the step's tokens, then one per further draft."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.llm.architecture import LlmArchitecture
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.speculation import Speculation, figure
from dynosim.hardware_models.timing.columns import column, column_length
from dynosim.hardware_models.timing.graphs import Graphs
from dynosim.hardware_models.timing.ops import Gemm, shard
from dynosim.hardware_models.timing.pricing import PricedAttention, price
from dynosim.hardware_models.timing.source import OpSource


@dataclass(frozen=True, eq=False)
class PricedDraft:
    """Seconds of drafting but for attention.

    ``first_s`` is by new tokens of the step, all of which the draft computes as well, shape
    (tokens + 1,); ``again_s`` by sequences that draft, (sequences + 1,): heads, further passes, and
    the CPU before each. ``attention`` is that of one pass.
    """

    first_s: FloatArray
    again_s: FloatArray
    attention: PricedAttention
    sources: tuple[OpSource, ...]


def price_draft(engine: ResolvedEngine, graphs: Graphs) -> PricedDraft:
    """Returns what the engine's draft costs; UserError where an op of it has no price."""
    speculation = engine.speculation
    assert speculation is not None, "the engine does not speculate"
    assert speculation.draft is not None, "nothing computes drafts"
    priced = price(replace(engine, model=speculation.draft, speculation=None))
    length = len(priced.token_s)
    run = graphs.run_tokens(length)
    layers = priced.token_s + _fusion_s(engine, _each_pass(engine, speculation), length)
    first = layers + _fusion_s(engine, _first_pass(engine, speculation), length)
    drafts, head = speculation.num_tokens, priced.logit_s
    again = (drafts - 1) * layers[run][: len(head)] + drafts * (head + figure("draft_pass_s"))
    again[0] = 0.0
    cpu = OpSource("draft passes", "transferred", "CPU time between passes on vLLM 0.8, H100")
    return PricedDraft(first[run], again, priced.attention, (*priced.sources, cpu))


def _each_pass(engine: ResolvedEngine, speculation: Speculation) -> Gemm | None:
    """EAGLE and MTP join two hidden vectors into one; EAGLE-3's attention takes both."""
    draft = speculation.draft
    assert draft is not None, "nothing computes drafts"
    hidden = draft.hidden_size
    if speculation.method == "eagle3":
        width = _attention_inputs(draft, engine.args.tensor_parallel_size)
        return Gemm("draft inputs", 1, width, hidden, draft.base_dtype)
    if speculation.fused_states:
        return Gemm("draft fusion", 1, hidden, 2 * hidden, draft.base_dtype)
    return None


def _first_pass(engine: ResolvedEngine, speculation: Speculation) -> Gemm | None:
    """EAGLE-3 fuses the target's hidden vectors once, at the tokens that the target computed."""
    if speculation.method != "eagle3":
        return None
    target = engine.model
    inputs = speculation.fused_states * target.hidden_size
    return Gemm("draft fusion", 1, target.hidden_size, inputs, target.base_dtype)


def _attention_inputs(draft: LlmArchitecture, tp: int) -> int:
    if draft.mla is not None:
        return draft.mla.latent_dim + (draft.mla.q_lora_rank or 0)
    heads, kv = draft.num_attention_heads, draft.num_key_value_heads
    return (shard(heads, tp) + 2 * shard(kv, tp)) * draft.head_dim


def _fusion_s(engine: ResolvedEngine, op: Gemm | None, length: int) -> FloatArray:
    """Returns seconds for 0 ... ``length`` - 1 tokens."""
    seconds = np.zeros(length)
    if op is not None:
        tp = engine.args.tensor_parallel_size
        priced = column(engine.gpu, engine.backend.name, op, tp, column_length(length))
        seconds[1:] = priced.value[: length - 1]
    return seconds
