"""With asynchronous scheduling a prompt can be found as soon as its step has ended."""

from __future__ import annotations

import numpy as np
import pytest

from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.columns import Workload

UNITS, UNIT_TOKENS = 32, 16


def two_with_one_prompt(gap_s: float) -> Workload:
    """Two requests with the same prompt, the second while the first still decodes."""
    prefix = np.arange(1, UNITS + 1, dtype=np.int64)
    return Workload(
        name="two with one prompt",
        arrival_s=np.array([0.0, gap_s]),
        input_tokens=np.array([UNITS * UNIT_TOKENS] * 2),
        output_tokens=np.array([2000, 10]),
        prefix_ids=np.concatenate([prefix, prefix]),
        prefix_offsets=np.array([0, UNITS, 2 * UNITS]),
        prefix_block_tokens=UNIT_TOKENS,
    )


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_prompt_is_found_before_anyone_has_ended(backend: str, is_async: bool) -> None:
    deployment = Deployment(
        model="meta-llama/Llama-3.1-8B",
        gpu="h100_sxm",
        backend=backend,
        async_scheduling=is_async,
    )
    found = simulate(deployment, two_with_one_prompt(1.0)).result
    assert found.finish_s[0] > found.finish_s[1] > 1.0
    assert found.cached_tokens[0] == 0
    # All of it but the block of the last token, whose logits are needed.
    assert found.cached_tokens[1] >= UNITS * UNIT_TOKENS - 64
