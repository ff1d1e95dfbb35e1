"""One memory-bound kernel: what an engine's fused norm, rotary embedding or activation costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynosim.hardware_models.measure.lab import Calls, Lab

TABLE_ELEMENT_BYTES = 2
"""Bytes of an element in what the tables count as moved, whatever the engine computes in."""


def build(lab: Lab, key: Mapping[str, Any]) -> list[Calls]:
    """Returns a sum that reads one half and writes one half of ``bytes_per_token`` a token.

    Its operands are warm: the kernel before has just made them.
    """
    tokens = key["num_tokens"]
    width = max(1, key["bytes_per_token"] // (2 * TABLE_ELEMENT_BYTES))
    lab.copies(2 * lab.bytes_of(lab.wide, tokens, width))
    x, y = (lab.normal(lab.wide, tokens, width) for _ in range(2))
    return [Calls("add", [lambda: lab.torch.add(x, 1.0, out=y)])]
