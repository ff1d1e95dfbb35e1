"""A workload as columns: one array element a request, so that a million requests stay small."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload import summary
from dynosim.sim.workload.client import PATIENT, ClientPolicy
from dynosim.sim.workload.network import Network
from dynosim.sim.workload.turns import Turns


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """Requests in arrival order.

    ``arrival_s`` is seconds from the start of the run (all zero in a closed loop, where
    ``max_concurrency`` requests are kept in flight). ``prefix_ids[prefix_offsets[i]:
    prefix_offsets[i + 1]]`` are the identities of the full prefix blocks of request ``i``'s
    prompt, each covering ``prefix_block_tokens`` tokens: two requests share KV cache as far as
    their ids agree from the start, and one id never stands for two different prefixes. Blocks
    of a prompt after its last id belong to that request alone.

    Where ``max_concurrency`` is set, request ``i`` is sent at ``arrival_s[i]`` or when a slot
    frees, whichever is later, in order, and its latencies count from then (as in
    ``vllm bench serve``). ``notes`` says what a reader dropped or changed. ``priority`` is used by
    the priority scheduling policy, lower first; None is 0 for all. ``session`` tells which requests
    are turns of one conversation, where the trace says so. ``turns`` says which ones wait for the
    answers of others; ``network`` what lies between clients and server, None for nothing.
    ``clients`` numbers whom requests come from, where each limits what it has in flight.
    """

    name: str
    arrival_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray
    prefix_ids: IntArray
    prefix_offsets: IntArray
    prefix_block_tokens: int = 0
    max_concurrency: int | None = None
    notes: tuple[str, ...] = ()
    priority: IntArray | None = None
    session: IntArray | None = None
    client: ClientPolicy = PATIENT
    clients: IntArray | None = None
    turns: Turns | None = None
    network: Network | None = None

    @property
    def is_open(self) -> bool:
        """Whether requests are sent at their own times, whatever becomes of the others."""
        return self.max_concurrency is None and self.turns is None and self.clients is None

    def __len__(self) -> int:
        return len(self.arrival_s)

    def check(self) -> Workload:
        """Returns itself, or raises ``UserError`` naming the first broken promise above."""
        for problem in summary.problems(self):
            raise UserError(problem, where=f"workload {self.name!r}")
        return self

    def describe(self) -> dict[str, object]:
        """Returns size, rate, burstiness, lengths and what an infinite prefix cache would hit.

        ``rate_req_s`` is None where all requests arrive at once, ``interarrival_cv`` also where
        there are fewer than two gaps. ``ideal_prefix_hit_share_blocks`` is a share of all prompt
        blocks, of which a last partial one never hits.
        """
        return summary.describe(self)
