"""Why a GPU's clocks were low, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

REASONS = {
    0x4: "the power limit",
    0x8: "a hardware slowdown",
    0x20: "heat, by the driver",
    0x40: "heat, by the hardware",
    0x80: "the power supply",
}
"""Bits of NVML's ``nvmlClocksEventReasons`` that slow a busy GPU (NVML API reference, 2026)."""


def throttle_notes(states: Iterable[Mapping[str, Any] | None]) -> list[str]:
    """Returns a note for every reason that any of the states has (see ``device_state``)."""
    bits = 0
    for state in states:
        bits |= int((state or {}).get("throttle_reasons") or 0)
    return [f"clocks were low for {words}" for bit, words in REASONS.items() if bits & bit]
