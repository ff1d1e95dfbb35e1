"""Prefill attention of whole prompts, nothing cached before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynosim.hardware_models.measure.lab import Calls, Lab
from dynosim.hardware_models.measure.ops._attention import Heads, attention


def build(lab: Lab, key: Mapping[str, Any]) -> list[Calls]:
    """Returns the kernels for ``batch_size`` prompts of ``isl`` tokens."""
    lengths = [key["isl"]] * key["batch_size"]
    return attention(lab, Heads.of(key), lengths, lengths)
