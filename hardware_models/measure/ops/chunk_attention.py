"""Prefill attention of a chunk behind a cached prefix, as chunked prefill launches it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynosim.hardware_models.measure.lab import Calls, Lab
from dynosim.hardware_models.measure.ops._attention import Heads, attention


def build(lab: Lab, key: Mapping[str, Any]) -> list[Calls]:
    """Returns the kernels for ``chunk_tokens`` new tokens after ``prefix_tokens``."""
    chunk = key["chunk_tokens"]
    return attention(lab, Heads.of(key), [chunk], [chunk + key["prefix_tokens"]])
