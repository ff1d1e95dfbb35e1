"""The workload's requests as engines take them, made one by one when they arrive."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dynosim.hardware_models.arrays import IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.workload.columns import Workload


class Requests:
    """Sequences by the number of their request.

    ``blocks_per_unit`` are the KV blocks of one of their prefix units.
    """

    def __init__(self, workload: Workload, limits: EngineLimits) -> None:
        # A view gives Python's own numbers, one at a time, and copies nothing.
        self._prompts = workload.input_tokens.data
        self._outputs = workload.output_tokens.data
        priority = workload.priority
        self._priorities = None if priority is None else priority.data
        self._units, self.blocks_per_unit = prefix_units(workload, limits)

    def sequence(self, index: int) -> Sequence:
        """Returns request ``index`` as it arrives at an engine."""
        units = self._units(index) if self._units else []
        priority = self._priorities[index] if self._priorities else 0
        return Sequence(index, self._prompts[index], self._outputs[index], units, priority)

    def prompt(self, index: int) -> Sequence:
        """Returns request ``index`` as an engine sees it that computes its prompt for another."""
        seq = self.sequence(index)
        seq.output_tokens = 1
        seq.keeps_blocks = True
        return seq


def accepted(
    workload: Workload,
    max_model_len: int,
    num_blocks: int,
    limits: EngineLimits,
    max_prompt_tokens: int | None = None,
) -> IntArray:
    """Returns the requests that fit the model's length; the others are refused at once.

    So are those with longer prompts than ``max_prompt_tokens``, what is computed again after a
    pause included. Raises UserError where the KV pool is too small for the longest of the rest.
    """
    total = workload.input_tokens + workload.output_tokens
    fits = total <= max_model_len
    if max_prompt_tokens is not None:
        is_paused = limits.scheduling_policy == "max_utilization"
        fits &= (total if is_paused else workload.input_tokens) <= max_prompt_tokens
    # The last token is sampled but never stored.
    longest = int(total[fits].max(initial=1)) - 1
    blocks = -(-longest // limits.block_size)
    if blocks > num_blocks:
        raise UserError(
            f"a request of {longest + 1} tokens needs {blocks} KV blocks; "
            f"the whole pool has {num_blocks}",
            where="max_model_len",
            hint="give the engine more KV memory, or a smaller max_model_len",
        )
    return np.flatnonzero(fits)


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
