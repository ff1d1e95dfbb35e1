"""From a Hugging Face ``config.json`` to the architecture that the cost models read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from dynosim.hardware_models.llm.architecture import (
    LinearStateShape,
    LlmArchitecture,
    MlaShape,
    MoeShape,
)
from dynosim.hardware_models.llm.fields import Fields, read_json
from dynosim.hardware_models.llm.layers import layer_groups, num_experts
from dynosim.hardware_models.llm.quantization import parse_quantization

# Keys of features that change memory or time and that are not modelled: better no answer than
# a wrong one.
_NOT_MODELLED = {
    "index_topk": "sparse attention with an indexer",
    "compress_ratios": "compressed attention",
    "global_head_dim": "heads that differ between layers",
    "hidden_size_per_layer_input": "per-layer embeddings",
    "moe_latent_size": "experts in a latent space",
    "linear_attn_config": "Kimi linear attention",
    "hybrid_layer_pattern": "heads that differ between layers",
    "attention_other_setting": "heads that differ between layers",
    "sparse_attention_config": "sparse attention",
    "num_kv_shared_layers": "layers that share a KV cache",
    "attn_layer_period": "Jamba's order of layers",
    "mamba_d_ssm": "attention and Mamba side by side in a layer",
    "cross_attention_layers": "cross attention",
    "is_encoder_decoder": "an encoder beside the decoder",
}
_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_MTP_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
# Their checkpoints have the layer, their configurations need not say so.
_MTP_FAMILIES = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "mimo", "glm4_moe")
_TIED = ("gemma", "gemma2", "gemma3", "gemma3_text", "cohere", "cohere2", "starcoder2", "gpt2")
_BIASED = ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text", "phi", "gpt2")
_PLAIN_MLP = ("phi", "gpt2", "gpt_neox", "gpt_bigcode", "starcoder2", "falcon", "gptj", "nemotron")
_NORMS_HEADS = (
    *("qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe"),
    *("qwen3_5_text", "qwen3_5_moe_text", "qwen3_vl_text", "qwen3_vl_moe_text"),
    *("gemma3", "gemma3_text"),
)
_NORMS_ALL_HEADS = ("minimax_m2", "olmo2")
_PARALLEL_BLOCKS = ("phi", "falcon", "gptj", "cohere", "cohere2")
_SHARED_WIDTH = (
    "shared_expert_intermediate_size",
    "shared_intermediate_size",
    "moe_shared_expert_intermediate_size",
)


def read_config(path: Path, *, name: str | None = None) -> LlmArchitecture:
    """Returns the architecture in a ``config.json``.

    A ``hf_quant_config.json`` in the same folder is read too. Raises UserError that names the
    file and the key where something is missing, malformed or not modelled.
    """
    beside = path.parent / "hf_quant_config.json"
    quantization = read_json(beside) if beside.is_file() else {}
    return parse_config(
        read_json(path), name=name or str(path), where=str(path), beside=quantization
    )


def parse_config(
    content: dict[str, Any], *, name: str, where: str, beside: dict[str, Any] | None = None
) -> LlmArchitecture:
    """Returns the architecture that a ``config.json`` describes; see :func:`read_config`."""
    outer = Fields(content, where)
    config = _text_part(outer)
    for key, feature in _NOT_MODELLED.items():
        if config.values.get(key):
            raise config.error(key, f"{feature} is not modelled yet")
    family = config.text("model_type")
    hidden = config.integer("hidden_size", "n_embd", "d_model")
    heads = config.integer("num_attention_heads", "n_head")
    dtype = _dtype(config)
    vision = content.get("vision_config")
    return LlmArchitecture(
        name=name,
        family=family,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=_key_value_heads(config, heads),
        head_dim=_head_dim(config, hidden, heads),
        vocab_size=config.integer("vocab_size"),
        max_position_embeddings=_max_length(config),
        layers=layer_groups(config),
        tie_word_embeddings=config.flag("tie_word_embeddings", family in _TIED),
        gated_mlp=family not in _PLAIN_MLP and "relu2" not in _activation(config),
        attention_bias=config.flag("attention_bias", family in _BIASED),
        base_dtype=dtype,
        mla=_mla(config),
        moe=_moe(config, family),
        linear_state=_linear_state(config, hidden, dtype),
        quantization=parse_quantization(_quantization(outer, config), dtype, beside or {}),
        extra_parameters=_vision_parameters(outer, hidden),
        is_multimodal=vision is not None,
        mtp_layers=config.integer(*_MTP_KEYS, default=int(family in _MTP_FAMILIES), least=0),
        rotary_positions=_rotary_positions(config),
        parallel_blocks=family in _PARALLEL_BLOCKS or config.flag("use_parallel_residual", False),
        query_key_norm=_query_key_norm(config, family),
        attention_output_gate=family == "qwen3_next" or config.flag("attn_output_gate", False),
    )


def _query_key_norm(config: Fields, family: str) -> Literal["none", "head", "whole"]:
    if family in _NORMS_ALL_HEADS:
        return "whole"
    return "head" if family in _NORMS_HEADS or config.flag("use_qk_norm", False) else "none"


def _text_part(outer: Fields) -> Fields:
    """The text model's fields, with the outer ones where the inner mapping is silent."""
    for key in ("text_config", "llm_config", "language_config"):
        inner = outer.mapping(key)
        if inner is not None:
            merged = {k: v for k, v in outer.values.items() if not k.endswith("_config")}
            return Fields({**merged, **inner.values}, inner.where)
    return outer


def _quantization(outer: Fields, config: Fields) -> Fields | None:
    return outer.mapping("quantization_config") or config.mapping("quantization_config")


def _dtype(config: Fields) -> str:
    dtype = config.text("torch_dtype", "dtype", default="bfloat16").removeprefix("torch.")
    if dtype not in ("bfloat16", "float16", "float32"):
        raise config.error("torch_dtype", f"dtype {dtype!r} is not modelled")
    # vLLM serves float32 checkpoints in half precision unless told otherwise.
    return "float16" if dtype == "float32" else dtype


def _activation(config: Fields) -> str:
    return config.text("mlp_hidden_act", "hidden_act", "hidden_activation")


def _head_dim(config: Fields, hidden: int, heads: int) -> int:
    if config.has("kv_lora_rank"):
        return config.integer("qk_nope_head_dim") + config.integer("qk_rope_head_dim")
    return config.integer("head_dim", "attention_head_dim", default=hidden // heads)


def _key_value_heads(config: Fields, heads: int) -> int:
    if config.has("block_configs"):
        attention = [b["attention"] for b in config.items("block_configs")]
        groups = {a["n_heads_in_group"] for a in attention if a.get("n_heads_in_group")}
        if len(groups) != 1:
            raise config.error("block_configs", "heads that differ between layers: not modelled")
        return heads // int(groups.pop())
    count = config.integer("num_key_value_heads", "n_head_kv", default=heads)
    if not config.has("kv_lora_rank") and heads % count:
        raise config.error("num_key_value_heads", f"{count} does not divide {heads} heads")
    return count


def _max_length(config: Fields) -> int:
    """The longest context, as vLLM derives it: Yarn and the like stretch, Llama 3 is stretched."""
    length = config.integer(*_LENGTH_KEYS)
    rope = _rope(config)
    # Gemma 3's context is the scaled one already.
    if rope is None or config.text("model_type").startswith("gemma3"):
        return length
    kind = rope.text("rope_type", "type", default="default")
    factor = float(rope.values.get("factor") or 1.0)
    if kind == "yarn":
        return int(rope.integer("original_max_position_embeddings", default=length) * factor)
    return int(length * factor) if kind in ("linear", "dynamic", "ntk") else length


def _rope(config: Fields) -> Fields | None:
    return config.mapping("rope_scaling") or config.mapping("rope_parameters")


def _rotary_positions(config: Fields) -> int | None:
    rope = _rope(config)
    if rope is None or rope.text("rope_type", "type") != "linear":
        return None
    return int(config.integer(*_LENGTH_KEYS) * float(rope.values.get("factor") or 1.0))


def _mla(config: Fields) -> MlaShape | None:
    if not config.has("kv_lora_rank"):
        return None
    return MlaShape(
        kv_lora_rank=config.integer("kv_lora_rank"),
        q_lora_rank=config.integer("q_lora_rank") if config.has("q_lora_rank") else None,
        qk_nope_head_dim=config.integer("qk_nope_head_dim"),
        qk_rope_head_dim=config.integer("qk_rope_head_dim"),
        v_head_dim=config.integer("v_head_dim"),
    )


def _moe(config: Fields, family: str) -> MoeShape | None:
    experts = num_experts(config)
    if experts == 0:
        return None
    width = config.integer("moe_intermediate_size", "intermediate_size")
    shared = config.integer("n_shared_experts", default=0, least=0)
    if family == "llama4_text":
        shared = 1
    shared_width = shared * width
    if family != "qwen3_moe":  # Its configuration may carry the key, its layers never do.
        shared_width = config.integer(*_SHARED_WIDTH, default=shared_width, least=0)
    return MoeShape(
        num_experts=experts,
        experts_per_token=config.integer("num_experts_per_tok", "experts_per_token", "top_k"),
        moe_intermediate_size=width,
        num_shared_experts=shared or int(shared_width > 0),
        shared_intermediate_size=shared_width,
    )


def _linear_state(config: Fields, hidden: int, dtype: str) -> LinearStateShape | None:
    wide = config.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype") == "float32"
    state_dtype_bytes = 4 if wide or dtype == "float32" else 2
    if config.has("linear_num_value_heads"):
        return _gated_delta_net(config, hidden, state_dtype_bytes)
    if config.has("ssm_state_size") or config.has("mamba_d_state"):
        return _mamba2(config, hidden, state_dtype_bytes)
    return None


def _gated_delta_net(config: Fields, hidden: int, state_dtype_bytes: int) -> LinearStateShape:
    """Qwen3-Next's linear attention: projections q, k, v, z, b, a; a short convolution; out."""
    key_dim, value_dim = (
        config.integer("linear_key_head_dim"),
        config.integer("linear_value_head_dim"),
    )
    keys, heads = config.integer("linear_num_key_heads"), config.integer("linear_num_value_heads")
    kernel = config.integer("linear_conv_kernel_dim", default=4)
    mixed = 2 * keys * key_dim + heads * value_dim
    projections = hidden * (mixed + heads * value_dim + 2 * heads) + heads * value_dim * hidden
    return LinearStateShape(
        state_elements=heads * key_dim * value_dim,
        conv_elements=mixed * (kernel - 1),
        parameters=projections + mixed * kernel + 2 * heads + value_dim,
        state_dtype_bytes=state_dtype_bytes,
    )


def _mamba2(config: Fields, hidden: int, state_dtype_bytes: int) -> LinearStateShape:
    """Mamba-2: projections z, x, B, C, dt; a short convolution over x, B and C; out."""
    heads = config.integer("mamba_num_heads", "mamba_n_heads")
    inner = heads * config.integer("mamba_head_dim", "mamba_d_head")
    state = config.integer("ssm_state_size", "mamba_d_state")
    kernel = config.integer("conv_kernel", "mamba_d_conv", default=4)
    mixed = inner + 2 * config.integer("n_groups", "mamba_n_groups", default=1) * state
    return LinearStateShape(
        state_elements=inner * state,
        conv_elements=mixed * (kernel - 1),
        parameters=hidden * (inner + mixed + heads) + mixed * kernel + inner * hidden + 3 * heads,
        state_dtype_bytes=state_dtype_bytes,
    )


def _vision_parameters(outer: Fields, hidden: int) -> int:
    """A vision transformer and a two-layer projector, from the fields most towers share."""
    vision = outer.mapping("vision_config")
    if vision is None:
        return 0
    if vision.has("parameters"):
        return vision.integer("parameters")
    width = vision.integer("hidden_size", "vt_hidden_size", "embed_dim", "width")
    depth = vision.integer("num_hidden_layers", "depth", "vt_num_hidden_layers", "layers")
    inner = vision.integer("intermediate_size", "vt_intermediate_size", default=4 * width)
    matrices = 3 if vision.text("model_type") in ("pixtral", "qwen2_5_vl") else 2
    merged = width * vision.integer("spatial_merge_size", default=1) ** 2
    return depth * (4 * width**2 + matrices * width * inner) + merged * hidden + hidden**2
