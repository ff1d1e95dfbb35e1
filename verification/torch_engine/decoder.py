"""The model: a dense decoder whose keys and values live in pages."""

from __future__ import annotations

from math import pi
from typing import Any

from dynosim.verification.torch_engine.attention import Attention, Layout
from dynosim.verification.torch_engine.decoder_config import DecoderConfig, Rotary
from dynosim.verification.torch_engine.weights import LayerWeights, Weights

Tensor = Any


class Decoder:
    """Computes the next tokens of a batch.

    ``pages``: (layers, 2, blocks, block_size, KV heads, head_dim), keys and values of every block.
    """

    def __init__(
        self,
        torch: Any,
        config: DecoderConfig,
        weights: Weights,
        attention: Attention,
        max_positions: int,
    ) -> None:
        self.config = config
        self.weights = weights
        self.attention = attention
        self._torch = torch
        self._functions = torch.nn.functional
        device, dtype = weights.norm.device, weights.norm.dtype
        angles = rotary_angles(torch, config, max_positions).to(device)
        self._cos, self._sin = (
            part.to(dtype).unsqueeze(1) for part in (angles.cos(), angles.sin())
        )

    def next_tokens(
        self, tokens: Tensor, positions: Tensor, pages: Tensor, layout: Layout, last: Tensor
    ) -> Tensor:
        """Returns the likeliest next token behind the rows ``last`` of the batch.

        ``tokens`` and ``positions`` have the shape (tokens,). Keys and values of all are in
        ``pages`` before any token of their layer attends.
        """
        hidden = self.hidden(tokens, positions, pages, layout)[last]
        return self._functions.linear(
            self._norm(hidden, self.weights.norm), self.weights.head
        ).argmax(-1)

    def hidden(self, tokens: Tensor, positions: Tensor, pages: Tensor, layout: Layout) -> Tensor:
        """Returns what the last layer puts out, (tokens, hidden)."""
        x = self._functions.embedding(tokens, self.weights.embedding)
        angles = self._cos[positions], self._sin[positions]
        for layer, (keys, values) in zip(self.weights.layers, pages, strict=True):
            normed = self._norm(x, layer.attention_norm)
            x = x + self._attention(normed, layer, angles, keys, values, layout)
            x = x + self._mlp(self._norm(x, layer.mlp_norm), layer)
        return x

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return self._functions.rms_norm(x, (x.shape[-1],), weight, self.config.rms_norm_eps)

    def _attention(
        self,
        x: Tensor,
        layer: LayerWeights,
        angles: tuple[Tensor, Tensor],
        keys: Tensor,
        values: Tensor,
        layout: Layout,
    ) -> Tensor:
        config = self.config
        heads, kv_heads = config.num_heads, config.num_kv_heads
        qkv = self._functions.linear(x, layer.qkv, layer.qkv_bias)
        q, k, v = qkv.unflatten(-1, (-1, config.head_dim)).split([heads, kv_heads, kv_heads], 1)
        if config.query_key_norm:
            q, k = self._norm(q, layer.query_norm), self._norm(k, layer.key_norm)
        q, k = (self._rotated(part, *angles) for part in (q, k))
        keys.flatten(0, 1).index_copy_(0, layout.slots, k)
        values.flatten(0, 1).index_copy_(0, layout.slots, v)
        attended = self.attention(q, keys, values, layout).flatten(1)
        return self._functions.linear(attended, layer.output, layer.output_bias)

    def _rotated(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Returns (tokens, heads, head_dim) turned by each token's angles: halves are pairs."""
        one, other = x.chunk(2, -1)
        return self._torch.cat((one * cos - other * sin, other * cos + one * sin), -1)

    def _mlp(self, x: Tensor, layer: LayerWeights) -> Tensor:
        gate, up = self._functions.linear(x, layer.gate_up).chunk(2, -1)
        return self._functions.linear(self._functions.silu(gate) * up, layer.down)


def rotary_angles(torch: Any, config: DecoderConfig, max_positions: int) -> Tensor:
    """Returns the angles of every position, (positions, head_dim / 2), float32."""
    rotary, size = config.rotary, config.head_dim
    exponents = torch.arange(0, size, 2, dtype=torch.float32) / size
    frequencies = _stretched(torch, rotary, 1.0 / rotary.theta**exponents)
    return torch.outer(torch.arange(max_positions, dtype=torch.float32), frequencies)


def _stretched(torch: Any, rotary: Rotary, frequencies: Tensor) -> Tensor:
    """Returns the frequencies of a stretched context; Llama 3.1 stretches only the slow ones, those
    between two wavelengths in part (Meta's reference code, ``apply_scaling``)."""
    if rotary.kind == "default":
        return frequencies
    slow = frequencies / rotary.factor
    if rotary.kind == "linear":
        return slow
    turns = rotary.original_positions * frequencies / (2 * pi)
    low, high = rotary.low_freq_factor, rotary.high_freq_factor
    share = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return torch.lerp(slow, frequencies, share)
