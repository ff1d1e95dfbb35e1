"""A decoder's weights: random ones, or those of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynosim.verification.torch_engine.decoder_config import DecoderConfig

Tensor = Any

SCALE = 0.02
"""Standard deviation of random weights, as Hugging Face initialises these models."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerWeights:
    """One layer; projections of one input are one matrix, as serving engines fuse them.

    ``qkv``: ((heads + 2 KV heads) x head_dim, hidden), ``gate_up``: (2 x intermediate, hidden).
    """

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Tensor
    output_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Weights:
    """All of a model; ``head`` is ``embedding`` where they are tied."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor


def random_weights(
    torch: Any, config: DecoderConfig, device: Any, dtype: Any, seed: int = 0
) -> Weights:
    """Returns normal deviates: zeros would take less power than data does."""
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        empty = torch.empty(shape, dtype=dtype, device=device)
        return empty.normal_(0.0, SCALE, generator=generator)

    def ones(size: int) -> Tensor:
        return torch.ones(size, dtype=dtype, device=device)

    hidden, width, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
    qkv = (config.num_heads + 2 * config.num_kv_heads) * head_dim
    layers = tuple(
        LayerWeights(
            attention_norm=ones(hidden),
            qkv=normal(qkv, hidden),
            qkv_bias=normal(qkv) if config.qkv_bias else None,
            query_norm=ones(head_dim) if config.query_key_norm else None,
            key_norm=ones(head_dim) if config.query_key_norm else None,
            output=normal(hidden, config.num_heads * head_dim),
            output_bias=normal(hidden) if config.output_bias else None,
            mlp_norm=ones(hidden),
            gate_up=normal(2 * width, hidden),
            down=normal(hidden, width),
        )
        for _ in range(config.num_layers)
    )
    embedding = normal(config.vocab_size, hidden)
    head = embedding if config.tie_word_embeddings else normal(config.vocab_size, hidden)
    return Weights(embedding=embedding, layers=layers, norm=ones(hidden), head=head)


def checkpoint_weights(torch: Any, config: DecoderConfig, tensors: Mapping[str, Tensor]) -> Weights:
    """Returns weights by the names that Hugging Face gives them in these families; KeyError where
    one is missing."""

    def layer(number: int) -> LayerWeights:
        root = f"model.layers.{number}."

        def joined(names: str, kind: str) -> Tensor:
            parts = [tensors[f"{root}{name}.{kind}"] for name in names.split()]
            return torch.cat(parts)

        qkv = "self_attn.q_proj self_attn.k_proj self_attn.v_proj"
        normed = config.query_key_norm
        return LayerWeights(
            attention_norm=tensors[f"{root}input_layernorm.weight"],
            qkv=joined(qkv, "weight"),
            qkv_bias=joined(qkv, "bias") if config.qkv_bias else None,
            query_norm=tensors[f"{root}self_attn.q_norm.weight"] if normed else None,
            key_norm=tensors[f"{root}self_attn.k_norm.weight"] if normed else None,
            output=tensors[f"{root}self_attn.o_proj.weight"],
            output_bias=joined("self_attn.o_proj", "bias") if config.output_bias else None,
            mlp_norm=tensors[f"{root}post_attention_layernorm.weight"],
            gate_up=joined("mlp.gate_proj mlp.up_proj", "weight"),
            down=tensors[f"{root}mlp.down_proj.weight"],
        )

    embedding = tensors["model.embed_tokens.weight"]
    return Weights(
        embedding=embedding,
        layers=tuple(layer(number) for number in range(config.num_layers)),
        norm=tensors["model.norm.weight"],
        head=embedding if config.tie_word_embeddings else tensors["lm_head.weight"],
    )
