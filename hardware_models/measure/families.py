"""Key columns of everything that is measured: the tables' own, and what only people read."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dynosim.hardware_models.timing.own_tables import OWN_FAMILY_KEYS

FOR_PEOPLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "copy": ("op", "bytes"),
        "fused": ("op", "fused_dtype", "width", "num_tokens"),
        "launch": ("launch", "num_kernels"),
    }
)
"""Families that no simulation reads. ``copy``: bandwidth of memory and of the link to the host;
``fused``: norm and activation as PyTorch has them; ``launch``: kernels that do nothing."""

KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType({**OWN_FAMILY_KEYS, **FOR_PEOPLE})
"""Key columns per family that can be in a ledger."""
