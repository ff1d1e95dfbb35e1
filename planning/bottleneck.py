"""Why a load was too much: which limit broke, and what its time was spent on."""

from __future__ import annotations

from collections.abc import Sequence

from dynosim.planning.observation import Observation
from dynosim.planning.room import room_of
from dynosim.search.slo import Slo

FULL = 0.97
"""Share of the KV pool, or of the engine's sequences, from which on it counts as full."""


def bottleneck(observation: Observation, slos: Sequence[Slo]) -> str:
    """Returns in words what an observation that breaks a limit broke, and by what."""
    if observation.refused:
        return f"{observation.refused:,} requests are longer than the engine takes"
    if not observation.is_stable:
        return f"requests arrive faster than they are served: short of {_resource(observation)}"
    worst = max(slos, key=lambda slo: slo.violation(observation.latencies_ms))
    found = observation.latencies_ms[worst.metric]
    return f"{worst}, found {found:,.4g} ms: {_cause(observation, worst.kind)}"


def _cause(observation: Observation, kind: str) -> str:
    if kind in ("tpot", "itl"):
        prefills = (
            observation.latencies_ms["p50_itl_ms"] * 1.5 < observation.latencies_ms["mean_tpot_ms"]
        )
        return "steps lengthened by prefill" if prefills else "steps of large decode batches"
    if kind == "e2el":
        waits = sum(observation.shares.values())
        decode = observation.latencies_ms["mean_e2el_ms"] - waits
        if decode > waits:
            return "decoding"
    longest = max(observation.shares, key=lambda name: observation.shares[name])
    if longest == "frontend":
        return "API servers"
    if longest == "prefill":
        return "prefill in steps shared with others"
    return f"waiting for {_resource(observation)}"


def _resource(observation: Observation) -> str:
    """Returns what those who waited for a place in the batch waited for."""
    metrics, room = observation.metrics, room_of(observation.simulation)
    if metrics["preemptions"] or metrics["kv_usage_peak"] >= FULL:
        return "KV-cache blocks"
    if observation.in_flight >= FULL * room.max_num_seqs:
        return f"the {room.max_num_seqs:,} sequences of max_num_seqs"
    return "room in the steps, which others' prompts take"
