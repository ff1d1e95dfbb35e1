"""Peak bytes of activations on one GPU, from the shapes that a profiling run allocates.

The engine profiles ``max_num_batched_tokens`` tokens, then samples for ``max_num_seqs``
sequences. The larger of both peaks counts: a forward pass through the widest layer, or the
logits of all sequences in several precisions and orders (copied, sorted, softened) while the
last hidden states are still there.
"""

from __future__ import annotations

from dynosim.hardware_models.data_parallel import fused_moe_chunk_tokens
from dynosim.hardware_models.llm.architecture import LlmArchitecture
from dynosim.hardware_models.memory.constants import MemoryConstants
from dynosim.hardware_models.memory.stages import Stage
from dynosim.hardware_models.memory.weights import dtype_bytes
from dynosim.hardware_models.resolve import ResolvedEngine

# Layer inputs, outputs and residuals alive while the widest layer computes.
_HIDDEN_COPIES = 3
_DENSE_COPIES = 3  # Gate and up projections, and their product.
_QUANTIZED_INPUT_BYTES = {"fp8": 1.0, "fp8_block": 1.0, "int8": 1.0, "nvfp4": 0.5}


def logits_bytes(engine: ResolvedEngine, constants: MemoryConstants) -> int:
    """Returns what sampling for ``max_num_seqs`` sequences takes at its peak; same on all ranks."""
    args, model = engine.args, engine.model
    rows = min(args.max_num_seqs or 1, args.max_num_batched_tokens or 1)
    # The model's own logits are one of the copies; float32 models make that one larger.
    per_logit = constants.bytes_per_logit + dtype_bytes(model.base_dtype) - 2
    return int(rows * model.vocab_size * per_logit)


def activation_bytes(engine: ResolvedEngine, stage: Stage, constants: MemoryConstants) -> int:
    """Returns the peak of activations on one rank of ``stage`` in the profiling run."""
    model, tokens = engine.model, engine.args.max_num_batched_tokens or 1
    hidden = tokens * model.hidden_size * dtype_bytes(model.base_dtype)
    sampling = logits_bytes(engine, constants) + hidden if stage.last else 0
    workspace = _moe_workspace_bytes(engine)
    forward = _dense_bytes(engine) + _HIDDEN_COPIES * hidden
    held = constants.base_bytes
    if constants.holds_moe_workspace:
        held += workspace
    else:
        forward = max(forward, workspace + _HIDDEN_COPIES * hidden)
    if model.is_multimodal:
        held += hidden  # The cache of encoder outputs, one budget of tokens long.
    if engine.ranks_in_step > 1:
        held += 2 * hidden * engine.ranks_in_step  # Tokens of all ranks gathered, and their sums.
    if engine.args.pipeline_parallel_size > 1:
        held += 2 * hidden  # Hidden states and residuals handed from stage to stage.
    return held + max(sampling, forward)


def _dense_bytes(engine: ResolvedEngine) -> int:
    """Buffers of the widest dense block: an MLP, or the heads of attention."""
    model, args = engine.model, engine.args
    width = dtype_bytes(model.base_dtype)
    shared = model.moe.shared_intermediate_size if model.moe else 0
    mlp = max((g.intermediate_size + shared * g.is_moe for g in model.layers), default=0)
    quantized = _QUANTIZED_INPUT_BYTES.get(model.quantization.linear, 0.0)
    mlp_bytes = mlp * (_DENSE_COPIES * width + quantized)
    block = max(mlp_bytes, _attention_width(model) * width)
    return int((args.max_num_batched_tokens or 1) * block / args.tensor_parallel_size)


def _attention_width(model: LlmArchitecture) -> int:
    heads, head_dim = model.num_attention_heads, model.head_dim
    if model.mla is not None:
        up = model.mla.qk_nope_head_dim + 2 * model.mla.v_head_dim
        return heads * (2 * head_dim + up)
    return (2 * heads + 2 * model.num_key_value_heads) * head_dim


def _moe_workspace_bytes(engine: ResolvedEngine) -> int:
    """The fused expert kernel's two buffers: a row for each token and expert it is routed to.

    One holds gate and up projections, then outputs; the other the activated products. With
    expert parallelism each rank holds whole experts. MXFP4 kernels showed no such buffers. Of the
    tokens that data-parallel ranks gather, a launch takes up to a chunk.
    """
    model, args = engine.model, engine.args
    if not model.is_moe or model.moe is None or model.quantization.experts == "mxfp4":
        return 0
    parts = 1 if args.enable_expert_parallel else engine.expert_gpus
    inner, hidden = model.moe.moe_intermediate_size // parts, model.hidden_size
    tokens = args.max_num_batched_tokens or 1
    if engine.ranks_in_step > 1:
        tokens = min(tokens * engine.ranks_in_step, max(tokens, fused_moe_chunk_tokens()))
    rows = tokens * model.moe.experts_per_token
    return rows * (max(2 * inner, hidden) + max(inner, hidden)) * dtype_bytes(model.base_dtype)
