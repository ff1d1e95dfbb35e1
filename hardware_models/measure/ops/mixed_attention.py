"""One launch over a prefill chunk and decoding sequences, as a mixed step has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynosim.hardware_models.measure.lab import Calls, Lab
from dynosim.hardware_models.measure.ops._attention import Heads, attention


def build(lab: Lab, key: Mapping[str, Any]) -> list[Calls]:
    """Returns the kernels for a chunk after its prefix and ``batch_size`` decoding sequences."""
    chunk, batch = key["chunk_tokens"], key["batch_size"]
    new = [chunk, *[1] * batch]
    seen = [chunk + key["prefix_tokens"], *[key["kv_tokens"]] * batch]
    return attention(lab, Heads.of(key), new, seen)
