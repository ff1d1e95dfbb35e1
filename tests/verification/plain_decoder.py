"""A decoder without pages, chunks or batches: every token anew, sequence by sequence."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

from dynosim.verification.torch_engine.decoder import rotary_angles
from dynosim.verification.torch_engine.decoder_config import DecoderConfig
from dynosim.verification.torch_engine.weights import Weights


def greedy(
    torch: Any, config: DecoderConfig, weights: Weights, prompt: Sequence[int], answer: int
) -> list[int]:
    """Returns the ``answer`` likeliest tokens behind a prompt."""
    tokens = list(prompt)
    for _ in range(answer):
        tokens.append(int(logits(torch, config, weights, tokens)[-1].argmax()))
    return tokens[len(prompt) :]


def logits(torch: Any, config: DecoderConfig, weights: Weights, tokens: Sequence[int]) -> Any:
    """Returns the logits behind every token, (tokens, vocabulary)."""
    length = len(tokens)
    angles = rotary_angles(torch, config, length)
    turn = torch.cat((angles, angles), -1)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)

    def norm(x: Any, weight: Any) -> Any:
        return x * (x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps).rsqrt() * weight

    def rotated(x: Any) -> Any:
        one, other = x.chunk(2, -1)
        return x * turn.cos() + torch.cat((-other, one), -1) * turn.sin()

    x = weights.embedding[torch.tensor(tokens)]
    for layer in weights.layers:
        qkv = norm(x, layer.attention_norm) @ layer.qkv.T
        if layer.qkv_bias is not None:
            qkv = qkv + layer.qkv_bias
        by_head = qkv.view(length, -1, config.head_dim).transpose(0, 1)
        q, k, v = by_head.split([config.num_heads, config.num_kv_heads, config.num_kv_heads])
        if config.query_key_norm:
            q, k = norm(q, layer.query_norm), norm(k, layer.key_norm)
        q, k = rotated(q), rotated(k)
        each = config.num_heads // config.num_kv_heads
        k, v = (part.repeat_interleave(each, 0) for part in (k, v))
        scores = (q @ k.transpose(1, 2) / sqrt(config.head_dim)).masked_fill(future, -torch.inf)
        attended = (scores.softmax(-1) @ v).transpose(0, 1).reshape(length, -1)
        x = x + attended @ layer.output.T
        if layer.output_bias is not None:
            x = x + layer.output_bias
        gate, up = (norm(x, layer.mlp_norm) @ layer.gate_up.T).chunk(2, -1)
        x = x + (gate * gate.sigmoid() * up) @ layer.down.T
    return norm(x, weights.norm) @ weights.head.T
