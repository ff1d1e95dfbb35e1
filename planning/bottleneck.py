"""Why a load was too much: which limit broke, and what the deployment was bound by."""

from __future__ import annotations

from collections.abc import Sequence

from dynosim.planning.observation import Observation
from dynosim.search.slo import Slo
from dynosim.sim.bottleneck.attribution import IDLE
from dynosim.sim.bottleneck.report import bottleneck as bound_by

MOST_NAMED = 2
LEAST_SHARE = 0.05
"""What took less of the engines' time is not worth a name."""


def bottleneck(observation: Observation, slos: Sequence[Slo]) -> str:
    """Returns in words which limit an observation breaks, and by what it was bound meanwhile."""
    if observation.refused:
        return f"{observation.refused:,} requests are longer than the engine takes"
    if not observation.is_stable:
        return f"requests arrive faster than they are served; {_bound(observation)}"
    worst = max(slos, key=lambda slo: slo.violation(observation.latencies_ms))
    found = observation.latencies_ms[worst.metric]
    spent = f", most of it {_spent_on(observation)}" if worst.kind == "ttft" else ""
    return f"{worst}, found {found:,.4g} ms{spent}; {_bound(observation)}"


def _spent_on(observation: Observation) -> str:
    """Returns what the mean time to first token was spent on."""
    longest = max(observation.shares, key=lambda name: observation.shares[name])
    return {"frontend": "front-end", "queue": "queue", "prefill": "prefill"}[longest]


def _bound(observation: Observation) -> str:
    """Returns the largest shares of the engines' time at work by what bound them."""
    found = bound_by(observation.simulation)
    if found is None:
        return "no request was served"
    # Without requests nothing binds: at a light load that would hide what does.
    shares = {name: share for name, share in found.bound_by.items() if name != IDLE}
    busy = sum(shares.values()) or 1.0
    ranked = sorted(((name, share / busy) for name, share in shares.items()), key=lambda x: -x[1])
    named = [f"{name} {share:.0%}" for name, share in ranked[:MOST_NAMED] if share >= LEAST_SHARE]
    return f"bound by {', '.join(named)}"
