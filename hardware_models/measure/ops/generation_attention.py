"""Decode attention: one new token a sequence, which ``kv_tokens`` counts too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynosim.hardware_models.measure.lab import Calls, Lab
from dynosim.hardware_models.measure.ops._attention import Heads, attention


def build(lab: Lab, key: Mapping[str, Any]) -> list[Calls]:
    """Returns the kernels for ``batch_size`` sequences of ``kv_tokens``."""
    batch = key["batch_size"]
    return attention(lab, Heads.of(key), [1] * batch, [key["kv_tokens"]] * batch)
