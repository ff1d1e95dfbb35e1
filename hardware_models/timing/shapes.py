"""Shapes of the ops that one layer launches on one GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KvDtype = Literal["bfloat16", "fp8", "int8"]


@dataclass(frozen=True, kw_only=True)
class AttentionShape:
    """Attention of one layer on one tensor-parallel shard.

    ``kind`` "gqa": ``qk_dim`` = ``v_dim`` = head_dim, keys and values cached per KV head.
    ``kind`` "mla": one latent of ``latent_dim`` cached per token; prefill computes with
    ``qk_dim`` and ``v_dim`` per head, decode with the latent itself (absorbed weights), of
    which ``latent_value_dim`` elements are also the value.
    """

    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    kv_dtype: KvDtype = "bfloat16"
    window: int | None = None
    kind: Literal["gqa", "mla"] = "gqa"
    latent_dim: int = 0
    latent_value_dim: int = 0

    @property
    def kv_element_bytes(self) -> float:
        """Bytes of one cached element."""
        return 2.0 if self.kv_dtype == "bfloat16" else 1.0

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes cached per token, and read per token of context at decode."""
        if self.kind == "mla":
            return self.latent_dim * self.kv_element_bytes
        return self.kv_heads * (self.qk_dim + self.v_dim) * self.kv_element_bytes

    @property
    def prefill_flop_per_pair(self) -> float:
        """FLOP per (query, key) pair: the score and the weighted sum."""
        return 2.0 * self.heads * (self.qk_dim + self.v_dim)

    @property
    def decode_flop_per_pair(self) -> float:
        """FLOP per token of context for one new token."""
        if self.kind == "mla":
            return 2.0 * self.heads * (self.latent_dim + self.latent_value_dim)
        return self.prefill_flop_per_pair

    @property
    def compute(self) -> str:
        """The fastest rate a kernel may use: that of the cache's dtype; int8 is dequantised."""
        return "bfloat16" if self.kv_dtype == "int8" else self.kv_dtype

    @property
    def label(self) -> str:
        """Short words for messages."""
        window = f" window {self.window}" if self.window else ""
        return f"{self.kind} {self.heads}/{self.kv_heads} heads x {self.qk_dim}{window}"


@dataclass(frozen=True, kw_only=True)
class MoeBlock:
    """The routed experts of one layer as a group of ``moe_tp`` x ``moe_ep`` GPUs splits them.

    ``load`` names how tokens spread over experts, as the measured tables do.
    """

    hidden_size: int
    inter_size: int
    topk: int
    num_experts: int
    moe_tp: int
    moe_ep: int
    gated: bool = True
    load: str = "power_law_1.2"
