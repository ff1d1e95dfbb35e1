"""The workload's requests as engines take them, made one by one when they arrive."""

from __future__ import annotations

import numpy as np

from dynosim.hardware_models.arrays import IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.prompts import Prompts
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.workload.columns import Workload


class Requests(Prompts):
    """Sequences by the number of their request."""

    def __init__(self, workload: Workload, limits: EngineLimits) -> None:
        super().__init__(workload, limits)
        self._outputs = workload.output_tokens.data

    def sequence(self, index: int) -> Sequence:
        """Returns request ``index`` as it arrives at an engine."""
        units = self.units(index)
        priority = self._priorities[index] if self._priorities else 0
        return Sequence(index, self._tokens[index], self._outputs[index], units, priority)

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
