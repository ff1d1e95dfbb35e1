"""How many requests have room at once: in the KV pool, and by the engine's own limit."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.sim.simulate import Simulation


@dataclass(frozen=True, kw_only=True)
class Room:
    """Limits that hold whatever the latency.

    ``kv_tokens`` are those of all replicas and data-parallel ranks. A request holds
    ``live_tokens`` in the mean over its decoding (prompt and half of its answer), ``full_tokens``
    at its end; prefixes that requests share are counted for each of them.
    """

    kv_tokens: int
    live_tokens: float
    full_tokens: float
    max_num_seqs: int

    @property
    def kv_requests(self) -> float:
        """Requests of mean size that the pool holds at once."""
        return self.kv_tokens / self.live_tokens

    @property
    def kv_requests_full(self) -> float:
        """Requests that the pool holds when all of them are at their end."""
        return self.kv_tokens / self.full_tokens


def room_of(simulation: Simulation) -> Room:
    """Returns the room of a simulated deployment for its own workload."""
    load, args = simulation.result.workload, simulation.engine.args
    engines = simulation.deployment.replicas * args.data_parallel_size
    # Of the requests that are there at a time, those with long answers are more: steps are about
    # equally long, so that a request counts by the length of its answer.
    weights = load.output_tokens / load.output_tokens.sum()
    live = float(((load.input_tokens + load.output_tokens / 2) * weights).sum())
    full = float(((load.input_tokens + load.output_tokens) * weights).sum())
    assert args.max_num_seqs is not None, "unresolved engine"
    return Room(
        kv_tokens=simulation.memory.kv_cache_tokens * engines,
        live_tokens=live,
        full_tokens=full,
        max_num_seqs=args.max_num_seqs * engines,
    )
