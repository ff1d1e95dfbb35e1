"""Bytes of weights on one GPU, by format and sharding."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.llm.architecture import LayerGroup, LlmArchitecture
from dynosim.hardware_models.llm.parameters import layer_parameters
from dynosim.hardware_models.memory.stages import Stage

_VOCABULARY_MULTIPLE = 64
_MXFP4_HIDDEN_MULTIPLE = 256


def dtype_bytes(dtype: str) -> int:
    """Returns the bytes of one element of an unquantised dtype."""
    return 4 if dtype == "float32" else 2


def round_up(value: int, multiple: int) -> int:
    """Returns the least multiple of ``multiple`` that is not below ``value``."""
    return -(-value // multiple) * multiple


def padded_vocabulary(model: LlmArchitecture) -> int:
    """Rows of the embedding as vLLM allocates them: a multiple of 64."""
    return round_up(model.vocab_size, _VOCABULARY_MULTIPLE)


@dataclass(frozen=True)
class Cuts:
    """Over how many GPUs weights are cut: attention and vocabulary, routed experts, other MLPs."""

    tensor: int
    experts: int
    mlp: int


def stage_weight_bytes(
    model: LlmArchitecture, stage: Stage, cuts: Cuts, mxfp4_multiple: int
) -> float:
    """Returns the bytes of weights of one rank of a pipeline stage.

    Split by tensor parallelism: projections, experts (over data-parallel ranks, too), embedding
    and head (rows padded to 64) and vision tower. Copied to every rank: norms, routers, the
    down-projections of latent attention, tables of rotary angles, and key-value heads where there
    are fewer of them than ranks.
    """
    layers = sum(
        count * _layer_bytes(model, group, cuts, mxfp4_multiple) for group, count in stage.layers
    )
    return layers + _outside_bytes(model, stage, cuts.tensor)


def _layer_bytes(
    model: LlmArchitecture, group: LayerGroup, cuts: Cuts, mxfp4_multiple: int
) -> float:
    tp = cuts.tensor
    parts, quantization = layer_parameters(model, group), model.quantization
    plain = dtype_bytes(model.base_dtype)
    linear = quantization.linear_bits_per_weight / 8
    mixer = linear if quantization.quantizes_attention else float(plain)
    kv_share = key_value_heads_per_rank(model, tp) / model.num_key_value_heads
    experts = parts.experts * quantization.experts_bits_per_weight / 8 / cuts.experts
    if quantization.experts == "mxfp4":
        experts *= _mxfp4_padding(model, cuts.experts, mxfp4_multiple)
    return (
        mixer * ((parts.attention + parts.linear_state) / tp + parts.key_value * kv_share)
        + mixer * parts.latent
        + _absorbed_bytes(model, group, tp)
        + linear * parts.mlp / cuts.mlp
        + experts
        + plain * (parts.router + parts.norms)
    )


def key_value_heads_per_rank(model: LlmArchitecture, tp: int) -> int:
    """Key-value heads that one rank holds: its share, at least one."""
    return max(1, -(-model.num_key_value_heads // tp))


def _mxfp4_padding(model: LlmArchitecture, parts: int, multiple: int) -> float:
    """How much larger padding makes MXFP4 experts: the kernels want aligned shapes."""
    width = model.moe.moe_intermediate_size / parts if model.moe else 1.0
    padded = round_up(int(width), multiple) / width
    return padded * round_up(model.hidden_size, _MXFP4_HIDDEN_MULTIPLE) / model.hidden_size


def _absorbed_bytes(model: LlmArchitecture, group: LayerGroup, tp: int) -> float:
    """vLLM keeps the up-projections of latent attention a second time, in the base dtype."""
    if group.mixer != "mla" or model.mla is None:
        return 0.0
    heads = model.num_attention_heads / tp
    up = model.mla.kv_lora_rank * heads * (model.mla.qk_nope_head_dim + model.mla.v_head_dim)
    return up * dtype_bytes(model.base_dtype)


def _outside_bytes(model: LlmArchitecture, stage: Stage, tp: int) -> float:
    plain = dtype_bytes(model.base_dtype)
    table = padded_vocabulary(model) * model.hidden_size * plain / tp
    tables = int(stage.first) + int(stage.last)
    if model.tie_word_embeddings and stage.first:
        tables = 1
    extra = model.extra_parameters * plain / tp if stage.first else 0.0
    return tables * table + extra + _rotary_bytes(model) + plain * model.hidden_size


def _rotary_bytes(model: LlmArchitecture) -> int:
    """The cosines and sines of every position: 2.5 GiB for the ten million of Llama 4 Scout."""
    width = model.mla.qk_rope_head_dim if model.mla else model.head_dim
    positions = model.rotary_positions or model.max_position_embeddings
    return positions * width * dtype_bytes(model.base_dtype)
