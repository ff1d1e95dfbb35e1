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


def accepted(workload: Workload, max_model_len: int, num_blocks: int, block_size: int) -> IntArray:
    """Returns the requests that fit the model's length; the others are refused at once.

    Raises UserError where the whole KV pool is too small for the longest of them.
    """
    total = workload.input_tokens + workload.output_tokens
    fits = total <= max_model_len
    # The last token is sampled but never stored.
    longest = int(total[fits].max(initial=1)) - 1
    blocks = -(-longest // block_size)
    if blocks > num_blocks:
        raise UserError(
            f"a request of {longest + 1} tokens needs {blocks} KV blocks; "
            f"the whole pool has {num_blocks}",
            where="max_model_len",
            hint="give the engine more KV memory, or a smaller max_model_len",
        )
    return np.flatnonzero(fits)
