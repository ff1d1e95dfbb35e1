"""The shape of a large language model, as far as memory and time depend on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mixer = Literal["attention", "mla", "linear", "mamba", "none"]


@dataclass(frozen=True, kw_only=True)
class LayerGroup:
    """Returns ``count`` decoder layers of one kind.

    ``mixer`` mixes tokens (grouped-query attention, multi-head latent attention, gated linear
    attention, Mamba, or nothing for a pure MLP layer); ``window`` is the sliding or chunked local
    attention span in tokens (None: full). ``is_moe`` says that the MLP is the model's expert
    block; else it is a dense MLP of width ``intermediate_size`` (0: no MLP in this layer).
    """

    count: int
    mixer: Mixer = "attention"
    window: int | None = None
    is_moe: bool = False
    intermediate_size: int = 0


@dataclass(frozen=True, kw_only=True)
class MlaShape:
    """Multi-head latent attention (DeepSeek-V2 paper, arXiv 2405.04434, section 2.1)."""

    kv_lora_rank: int
    q_lora_rank: int | None
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    @property
    def latent_dim(self) -> int:
        """Elements cached per token and layer: the compressed KV plus the shared rotary key."""
        return self.kv_lora_rank + self.qk_rope_head_dim


@dataclass(frozen=True, kw_only=True)
class MoeShape:
    """The expert block of a mixture-of-experts model."""

    num_experts: int
    experts_per_token: int
    moe_intermediate_size: int
    num_shared_experts: int = 0
    shared_intermediate_size: int = 0


@dataclass(frozen=True, kw_only=True)
class LinearStateShape:
    """Constant-size state of linear-attention or Mamba layers, per layer and sequence."""

    state_elements: int
    conv_elements: int
    parameters: int
    state_dtype_bytes: int = 4


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """How a checkpoint stores its weights.

    ``linear`` is the format of the quantised linear layers, ``experts`` that of the routed
    experts: ``bfloat16``, ``float16``, ``float32``, ``fp8`` (one scale per tensor or row),
    ``fp8_block`` (128 x 128), ``int8`` (weights and activations), ``int8_weight_only``, ``int4``
    (weights only: AWQ, GPTQ, w4a16), ``nvfp4`` or ``mxfp4``;
    embeddings, norms and ``excluded`` modules stay in the model's base dtype.
    ``bits_per_weight`` includes scales and zero points. ``static_scales``: the checkpoint brings
    the scales of quantised activations.
    """

    method: str = "none"
    linear: str = "bfloat16"
    experts: str = "bfloat16"
    kv_cache: str = "auto"
    linear_bits_per_weight: float = 16.0
    experts_bits_per_weight: float = 16.0
    quantizes_attention: bool = True
    quantizes_lm_head: bool = False
    static_scales: bool = False


@dataclass(frozen=True, kw_only=True)
class LlmArchitecture:
    """Returns everything the cost models need to know of a model; hashable."""

    name: str
    family: str
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    layers: tuple[LayerGroup, ...]
    tie_word_embeddings: bool = False
    gated_mlp: bool = True
    attention_bias: bool = False
    base_dtype: str = "bfloat16"
    mla: MlaShape | None = None
    moe: MoeShape | None = None
    linear_state: LinearStateShape | None = None
    quantization: Quantization = Quantization()
    extra_parameters: int = 0
    """Parameters outside the decoder (vision tower, projector, multi-token-prediction heads)."""
    is_multimodal: bool = False
    """Whether images or sound come in: their encoder and its cache then take memory too."""
    parallel_blocks: bool = False
    """Whether attention and MLP read the same input: their sum is reduced over GPUs once."""
    mtp_layers: int = 0
    """Layers of the checkpoint that predict a further token; no part of ``layers``."""
    attention_output_gate: bool = False
    """Whether the query projection is twice as wide, its second half gating the output."""
    query_key_norm: Literal["none", "head", "whole"] = "none"
    """Whether queries and keys are normed, head by head or over all heads (and GPUs)."""
    rotary_positions: int | None = None
    """Rows of the table of rotary angles where scaling makes it longer than the context."""

    @property
    def num_layers(self) -> int:
        """Decoder layers of all kinds."""
        return sum(g.count for g in self.layers)

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return self.moe is not None and any(g.is_moe for g in self.layers)
