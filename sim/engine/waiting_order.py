"""Orders of SGLang's waiting queue: by what the radix cache already holds, or by length."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

from dynosim.sim.engine.radix_cache import Lease, RadixCache, RadixNode
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.sglang_rules import SglangRules

Waiting = deque[Sequence]


class WaitingOrder:
    """Sorts a queue by one of SGLang's policies; ``leases`` are what requests hold, by index.

    Those that look at prefixes are first come, first served where nothing is cached.
    """

    __slots__ = ("_block_size", "_kv", "_leases", "_policy", "_rules")

    def __init__(
        self,
        policy: str,
        kv: RadixCache,
        leases: Mapping[int, Lease],
        block_size: int,
        rules: SglangRules,
    ) -> None:
        self._policy = policy if kv.is_enabled or policy == "lof" else "fcfs"
        self._kv = kv
        self._leases = leases
        self._block_size = block_size
        self._rules = rules

    def sort(self, waiting: Waiting) -> None:
        """Puts the queue in order, in place."""
        if self._policy == "fcfs":
            return
        if self._policy == "dfs_weight":
            _replace(waiting, self._depth_first(waiting))
        elif self._policy == "lof":
            _replace(waiting, sorted(waiting, key=lambda seq: -seq.output_tokens))
        elif len(waiting) <= self._rules.lpm_queue_limit:
            _replace(waiting, self._longest_prefix_first(waiting))

    def _longest_prefix_first(self, waiting: Waiting) -> list[Sequence]:
        """Sorts by tokens found in the cache, most first; equals stay in order.

        Of requests that find few tokens and share as many with one another, all but the first go
        last: what that one computes, they will find.
        """
        few = self._rules.in_batch_prefix_tokens
        # Two requests share so many where they share the unit in which the last of them is.
        deciding = -(-few // (self._kv.blocks_per_unit * self._block_size)) - 1
        seen: set[int] = set()
        rank: dict[int, int] = {}
        for seq in waiting:
            num_blocks = self._kv.match(seq.units, self._leases.get(seq.index))[2]
            tokens = num_blocks * self._block_size
            rank[seq.index] = -min(tokens, seq.target - 1)
            if tokens <= few and len(seq.units) > deciding:
                if seq.units[deciding] in seen:
                    rank[seq.index] = 1
                seen.add(seq.units[deciding])
        return sorted(waiting, key=lambda seq: rank[seq.index])

    def _depth_first(self, waiting: Waiting) -> list[Sequence]:
        """Sorts by a walk through the tree, at each node the child with most requests first.

        Requests follow those of the nodes below theirs; equal children come in the order of their
        making.
        """
        ending: dict[RadixNode, list[Sequence]] = defaultdict(list)
        for seq in waiting:
            ending[self._kv.match(seq.units, self._leases.get(seq.index))[0]].append(seq)
        weights: dict[RadixNode, int] = defaultdict(int)
        for end, requests in ending.items():
            node: RadixNode | None = end
            while node is not None:
                weights[node] += len(requests)
                node = node.parent
        below: dict[RadixNode, list[RadixNode]] = defaultdict(list)
        for node in weights:
            if node.parent is not None:
                below[node.parent].append(node)
        # Backwards: a node's own requests, then its children from the lightest and last on.
        backwards: list[Sequence] = []
        stack = [self._kv.root]
        while stack:
            node = stack.pop()
            backwards.extend(reversed(ending.get(node, ())))
            stack.extend(sorted(below[node], key=lambda child: (-weights[child], child.number)))
        return backwards[::-1]


def _replace(waiting: Waiting, ordered: list[Sequence]) -> None:
    # In place: arrivals are appended to this very queue.
    waiting.clear()
    waiting.extend(ordered)
