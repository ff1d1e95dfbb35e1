"""Orders of SGLang's waiting queue: by what the radix cache already holds, or by length."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

from dynosim.sim.engine.radix_cache import Lease, RadixCache, RadixNode
from dynosim.sim.engine.sequence import Sequence

Leases = Mapping[int, Lease]
Waiting = deque[Sequence]


def longest_prefix_first(
    waiting: Waiting, kv: RadixCache, leases: Leases, unit_tokens: int, block_size: int, twin: int
) -> None:
    """Sorts by tokens found in the cache, most first; equals stay in order.

    Of requests that find at most ``twin`` tokens and share as many with one another, all but the
    first go last: what that one computes, they will find.
    """
    # Two requests share ``twin`` tokens where they share the unit in which the last of them is.
    deciding = -(-twin // unit_tokens) - 1
    seen: set[int] = set()
    found: dict[int, float] = {}
    for seq in waiting:
        tokens = kv.match(seq.units, leases.get(seq.index))[2] * block_size
        found[seq.index] = -min(tokens, seq.target - 1)
        if tokens <= twin and len(seq.units) > deciding:
            if seq.units[deciding] in seen:
                found[seq.index] = 1.0
            seen.add(seq.units[deciding])
    _rearrange(waiting, sorted(waiting, key=lambda seq: found[seq.index]))


def depth_first(waiting: Waiting, kv: RadixCache, leases: Leases) -> None:
    """Sorts by a walk through the tree, at each node the child with most waiting requests first.

    Requests follow those of the nodes below theirs; equal children come in the order of their
    making.
    """
    ending: dict[RadixNode, list[Sequence]] = defaultdict(list)
    for seq in waiting:
        ending[kv.match(seq.units, leases.get(seq.index))[0]].append(seq)
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
    stack = [kv.root]
    while stack:
        node = stack.pop()
        backwards.extend(reversed(ending.get(node, ())))
        stack.extend(sorted(below[node], key=lambda child: (-weights[child], child.number)))
    _rearrange(waiting, backwards[::-1])


def longest_output_first(waiting: Waiting) -> None:
    """Sorts by the tokens asked for, most first; equals stay in order."""
    _rearrange(waiting, sorted(waiting, key=lambda seq: -seq.output_tokens))


def _rearrange(waiting: Waiting, ordered: list[Sequence]) -> None:
    # In place: arrivals are appended to this very queue.
    waiting.clear()
    waiting.extend(ordered)
