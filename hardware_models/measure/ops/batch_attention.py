"""One launch over a whole batch: a prefill chunk behind its prefix, and decoding sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynosim.hardware_models.measure.lab import Calls, Lab
from dynosim.hardware_models.measure.ops._attention import Heads, attention


def build(lab: Lab, key: Mapping[str, Any]) -> list[Calls]:
    """Returns the kernels for a chunk (0: none) and ``num_decode`` sequences (0: none)."""
    chunk, decodes = key["chunk_tokens"], key["num_decode"]
    new = [chunk] * (chunk > 0) + [1] * decodes
    seen = [chunk + key["prefix_tokens"]] * (chunk > 0) + [key["kv_tokens"]] * decodes
    return attention(lab, Heads.of(key), new, seen)
