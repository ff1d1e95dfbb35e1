"""Random workloads for parity with SGLang's scheduler: small, seeded, most of them short of blocks.

Pages are mostly of one token, SGLang's default, and any token may be shared.

Only the standard library, since the recorder runs in an environment of its own.
"""

from __future__ import annotations

from random import Random
from typing import Any

from random_workloads import arrivals, prompt_length, units

Record = dict[str, Any]

# Group, number of workloads, and how they differ from SGLang's defaults.
PLAN: list[tuple[str, int, dict[str, Any]]] = [
    ("fcfs", 200, {}),
    ("lpm", 80, {"policy": "lpm"}),
    ("dfs_weight", 80, {"policy": "dfs-weight"}),
    ("lof", 30, {"policy": "lof"}),
    ("retraction", 80, {"is_daring": True}),
    ("no_chunks", 40, {"chunked": False}),
    ("mixed_chunk", 60, {"mixed": True}),
    ("pages", 60, {"page": 16, "unit_tokens": 16}),
    ("long_queue", 12, {"policy": "lpm", "num_requests": 200}),
    ("long_outputs", 8, {"longest_output": 9000}),
    ("coarse_units", 40, {"unit_tokens": 16}),
]


def all_workloads(seed: str) -> list[Record]:
    """Returns every workload of a recording, the same ones each time for one seed."""
    return [
        _workload(Random(f"sglang {seed} {group} {number}"), group, **kind)
        for group, count, kind in PLAN
        for number in range(count)
    ]


def _workload(
    rng: Random,
    group: str,
    policy: str = "fcfs",
    is_daring: bool = False,
    chunked: bool = True,
    mixed: bool = False,
    page: int = 1,
    unit_tokens: int = 1,
    num_requests: int = 0,
    longest_output: int = 200,
) -> Record:
    """Returns a workload, in vLLM's names of options.

    ``units[i]`` names the leading ``unit_tokens``-sized pieces of request ``i``'s prompt.
    """
    n = num_requests or rng.randint(6, 36)
    longest = rng.choice([16, 64] if is_daring else [64, 128, 320])
    prompts = [prompt_length(rng, longest, 16) for _ in range(n)]
    shortest = rng.choice([100] if is_daring else [1, 1, 40])
    kinds = [(shortest, shortest), (1, 60), (20, longest_output)]
    outputs = [rng.randint(*rng.choice(kinds)) for _ in range(n)]
    # SGLang takes no request that would not leave a few tokens of the pool free.
    needed = -(-(max(map(sum, zip(prompts, outputs, strict=True))) + 2) // page) + 1
    ample = [2 * needed] if is_daring else [3 * needed, 30 * needed]
    options = {
        "scheduler": "sglang",
        "num_blocks": needed + rng.choice([0, 7, needed // 2, needed, *ample]),
        "block_size": page,
        "max_num_seqs": rng.choice([8, 64] if is_daring else [1, 2, 3, 5, 8, 64]),
        "max_num_batched_tokens": page * rng.choice([8, 50, 64, 100, 256, 2048]),
        "max_model_len": needed * page,
        "enable_prefix_caching": unit_tokens > 1 or policy != "fcfs" or rng.random() < 0.8,
        "enable_chunked_prefill": chunked,
        "policy": policy,
        # Near 0 it lets in whoever's prompt fits, and has to retract.
        "schedule_conservativeness": rng.choice([0.0, 0.1] if is_daring else [0.0, 0.3, 1.0, 1.0]),
        "enable_mixed_chunk": mixed,
    }
    return {
        "group": group,
        "options": options,
        "arrival_step": arrivals(rng, n),
        "prompt_tokens": prompts,
        "output_tokens": outputs,
        "priority": [0] * n,
        "unit_tokens": unit_tokens,
        "units": units(rng, prompts, unit_tokens),
    }
