"""What the tiers of a run held and carried."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.arrays import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class TierUse:
    """One tier, of all replicas together: what was copied to it and loaded from it."""

    name: str
    stored_tokens: int
    loaded_tokens: int
    held_tokens: int


@dataclass(frozen=True, kw_only=True)
class ChannelUse:
    """One kind of link or drive, of all replicas together."""

    name: str
    carried_bytes: float
    busy_s: float
    count: int


@dataclass(frozen=True, kw_only=True)
class TierResult:
    """The tiers, the channels to them, and every load as a column element.

    ``request``, ``replica``, ``start_s`` (queued), ``end_s`` (all come) and ``tokens`` of loads.
    """

    tiers: tuple[TierUse, ...]
    channels: tuple[ChannelUse, ...]
    request: IntArray
    replica: IntArray
    start_s: FloatArray
    end_s: FloatArray
    tokens: IntArray
