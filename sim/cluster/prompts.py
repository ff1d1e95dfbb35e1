"""What can be known of the workload's requests before they are answered."""

from __future__ import annotations

from collections.abc import Callable

from dynosim.hardware_models.errors import UserError
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.workload.columns import Workload


class Prompts:
    """Prompts, their prefixes and whose they are, by the number of the request.

    ``blocks_per_unit`` are the KV blocks of one of their prefix units, ``unit_tokens`` its tokens.
    """

    def __init__(self, workload: Workload, limits: EngineLimits) -> None:
        # A view gives Python's own numbers, one at a time, and copies nothing.
        self._tokens = workload.input_tokens.data
        self._priorities = None if workload.priority is None else workload.priority.data
        self._sessions = None if workload.session is None else workload.session.data
        self._ids, self._bounds = workload.prefix_ids, workload.prefix_offsets.data
        self._units_of, self.blocks_per_unit = prefix_units(workload, limits)
        self.block_size = limits.block_size
        self.unit_tokens = limits.block_size * self.blocks_per_unit
        self._last: tuple[int, list[int]] = (-1, [])

    def tokens(self, index: int) -> int:
        """Returns the tokens of the prompt."""
        return self._tokens[index]

    def priority(self, index: int) -> int:
        """Returns the priority, lower first; 0 where the workload has none."""
        return self._priorities[index] if self._priorities else 0

    def session(self, index: int) -> int | None:
        """Returns which session the request is a turn of; None where the workload does not say."""
        return self._sessions[index] if self._sessions else None

    def units(self, index: int) -> list[int]:
        """Returns the identities of the prompt's prefix units; not to be changed."""
        if self._units_of is None:
            return []
        # Routers ask for those of a request that its engine is about to get.
        if self._last[0] != index:
            self._last = index, self._units_of(index)
        return self._last[1]

    def leading_blocks(self, index: int, count: int) -> list[int]:
        """Returns the identities of the first ``count`` prefix blocks of the workload, or of all.

        They are there whether engines cache prefixes or not.
        """
        start, stop = self._bounds[index], self._bounds[index + 1]
        ids: list[int] = self._ids[start : min(stop, start + count)].tolist()
        return ids


def prefix_units(
    workload: Workload, limits: EngineLimits
) -> tuple[Callable[[int], list[int]] | None, int]:
    """Returns what gives a request's prefix ids at the engine's granularity, and blocks per id.

    Trace blocks coarser than a KV block stay whole (the trace says nothing of what is shared
    inside one); finer ones are merged, and the last id of a merged group names it, which is
    enough since ids are chained. Raises UserError where neither size divides the other.
    """
    trace_block, block = workload.prefix_block_tokens, limits.block_size
    ids, bounds = workload.prefix_ids, workload.prefix_offsets.data
    if not trace_block or not limits.enable_prefix_caching or not len(ids):
        return None, 1
    if trace_block % block == 0:
        return lambda i: ids[bounds[i] : bounds[i + 1]].tolist(), trace_block // block
    if block % trace_block == 0:
        every = block // trace_block
        return lambda i: ids[bounds[i] + every - 1 : bounds[i + 1] : every].tolist(), 1
    raise UserError(
        f"KV blocks of {block} tokens do not line up with the workload's prefix blocks of "
        f"{trace_block}",
        where="block_size",
        hint=f"choose a divisor or a multiple of {trace_block}",
    )
