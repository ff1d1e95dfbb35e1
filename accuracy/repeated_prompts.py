"""The load of inference-perf's shared-prefix generator: few prompts, each sent many times.

A prompt is a system prompt that its group shares and a question of its own. The same prompts are
sent round after round, so that all but the first round finds whole prompts in the prefix cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import IntArray
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.prefix_chains import offsets_of

BLOCK_TOKENS = 16


@dataclass(frozen=True, kw_only=True)
class RepeatedPrompts:
    """``groups`` system prompts with ``prompts_per_group`` questions each.

    ``prompt_tokens`` is the whole prompt, its ``system_tokens`` included.
    """

    groups: int
    prompts_per_group: int
    system_tokens: int
    prompt_tokens: int
    output_tokens: int

    def block_ids(self) -> IntArray:
        """Returns the ids of every prompt's full blocks, shape (prompts, blocks)."""
        blocks = self.prompt_tokens // BLOCK_TOKENS
        shared = min(self.system_tokens // BLOCK_TOKENS, blocks)
        group, question = np.divmod(
            np.arange(self.groups * self.prompts_per_group), self.prompts_per_group
        )
        depth = np.arange(blocks)
        first_own = self.groups * shared
        own = (group * self.prompts_per_group + question)[:, None] * blocks + depth
        ids = np.where(depth < shared, group[:, None] * shared + depth, first_own + own)
        return np.asarray(ids, dtype=np.int64)

    def at_constant_rate(self, rate_req_s: float, duration_s: float) -> Workload:
        """Returns requests at even distances, the prompts in turn."""
        n = round(rate_req_s * duration_s)
        ids = self.block_ids()
        turn = np.arange(n) % len(ids)
        return Workload(
            name=f"{len(ids)} prompts in turn at {rate_req_s:g} req/s",
            arrival_s=np.arange(n) / rate_req_s,
            input_tokens=np.full(n, self.prompt_tokens, dtype=np.int64),
            output_tokens=np.full(n, self.output_tokens, dtype=np.int64),
            prefix_ids=ids[turn].reshape(-1),
            prefix_offsets=offsets_of(np.full(n, ids.shape[1], dtype=np.int64)),
            prefix_block_tokens=BLOCK_TOKENS,
        ).check()
