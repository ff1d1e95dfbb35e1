"""What speculative decoding takes of a GPU's memory: the draft's weights and its KV cache."""

from __future__ import annotations

from dataclasses import replace

from dynosim.hardware_models.memory.kv_cache import layer_kv_bytes_per_token
from dynosim.hardware_models.memory.stages import pipeline_stages
from dynosim.hardware_models.memory.weights import (
    Cuts,
    dtype_bytes,
    key_value_heads_per_rank,
    stage_weight_bytes,
)
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.speculation import Speculation


def draft_weight_bytes(engine: ResolvedEngine, mxfp4_multiple: int) -> float:
    """Returns the bytes of the draft's weights on one GPU; 0 where nothing is loaded.

    EAGLE and MTP layers use the target's embedding, and but for EAGLE-3 its head. What joins hidden
    vectors in front of the layer is copied to every rank.
    """
    speculation, tp = engine.speculation, engine.args.tensor_parallel_size
    if speculation is None or speculation.draft is None:
        return 0.0
    draft = speculation.draft
    (stage,) = pipeline_stages(draft, 1)
    if speculation.fused_states:
        stage = replace(stage, first=False, last=speculation.owns_head)
    weights = stage_weight_bytes(draft, stage, Cuts(tp, tp, tp), mxfp4_multiple)
    return weights + _fusion_bytes(engine, speculation)


def draft_kv_bytes_per_token(engine: ResolvedEngine) -> int:
    """Returns the bytes that the draft's layers cache per token on one GPU."""
    speculation = engine.speculation
    if speculation is None or speculation.draft is None:
        return 0
    layers = sum(g.count for g in speculation.draft.layers if g.mixer in ("attention", "mla"))
    return layers * layer_kv_bytes_per_token(replace(engine, model=speculation.draft))


def _fusion_bytes(engine: ResolvedEngine, speculation: Speculation) -> float:
    draft = speculation.draft
    assert draft is not None, "nothing computes drafts"
    hidden, target = draft.hidden_size, engine.model.hidden_size
    parameters = float(target * speculation.fused_states * target)
    if speculation.method == "eagle3":
        # Queries, keys and values of both the token and the fused vector.
        heads = draft.num_attention_heads / engine.args.tensor_parallel_size
        kv = 2 * key_value_heads_per_rank(draft, engine.args.tensor_parallel_size)
        parameters += (heads + kv) * draft.head_dim * hidden
    return parameters * dtype_bytes(draft.base_dtype)
