"""Random workloads for scheduler parity: small, seeded, each aimed at one corner of the scheduler.

Only the standard library, since the recorder runs in vLLM's own environment.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SchedulerOptions:
    """vLLM's own option names; ``num_blocks`` are the blocks that requests can hold.

    vLLM keeps one block more, its null block, which no request ever gets.
    """

    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    policy: str = "fcfs"
    long_prefill_token_threshold: int = 0
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool = True
    async_scheduling: bool = False


@dataclass(frozen=True, kw_only=True)
class ParityWorkload:
    """Requests by column, in arrival order; ``arrival_step`` is in steps of equal duration.

    ``units[i]`` names the leading ``unit_tokens``-sized pieces of request ``i``'s prompt: two
    prompts hold the same tokens as far as their units agree from the start, and nowhere else.
    """

    group: str
    options: SchedulerOptions
    arrival_step: list[int]
    prompt_tokens: list[int]
    output_tokens: list[int]
    priority: list[int]
    unit_tokens: int
    units: list[list[int]] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON; what is off in every older recording is left out."""
        data = asdict(self)
        if not self.options.async_scheduling:
            del data["options"]["async_scheduling"]
        return data


# Group, number of workloads, and how they differ from first come, first served with defaults.
PLAN: list[tuple[str, int, dict[str, Any]]] = [
    ("fcfs", 240, {}),
    ("priority", 80, {"policy": "priority"}),
    ("long_prefill", 80, {"long": True}),
    ("long_prefill_priority", 40, {"policy": "priority", "long": True}),
    ("watermark", 30, {"watermark": True}),
    ("first_chunk_admission", 30, {"scheduler_reserve_full_isl": False}),
    ("coarse_units", 40, {"blocks_per_unit": 4}),
    ("async_fcfs", 160, {"is_async": True}),
    ("async_priority", 80, {"is_async": True, "policy": "priority"}),
    ("async_long_prefill", 60, {"is_async": True, "long": True}),
]


def all_workloads(seed: str) -> list[ParityWorkload]:
    """Returns every workload of a recording, the same ones each time for one seed."""
    return [
        _workload(Random(f"{seed} {group} {number}"), group, **kind)
        for group, count, kind in PLAN
        for number in range(count)
    ]


def _workload(
    rng: Random,
    group: str,
    policy: str = "fcfs",
    long: bool = False,
    watermark: bool = False,
    scheduler_reserve_full_isl: bool = True,
    blocks_per_unit: int = 1,
    is_async: bool = False,
) -> ParityWorkload:
    block_size = rng.choice([16, 16, 32])
    unit_tokens = block_size * blocks_per_unit
    n = rng.randint(6, 36)
    longest = rng.choice([4, 8, 20]) * block_size
    prompts = [prompt_length(rng, longest, block_size) for _ in range(n)]
    outputs = [
        rng.choice([1, rng.randint(1, 8), rng.randint(1, 100), rng.randint(20, 150)])
        for _ in range(n)
    ]
    chunked = long or rng.random() < 0.75
    max_model_len = max(p + o for p, o in zip(prompts, outputs, strict=True)) + rng.randint(0, 40)
    max_num_seqs = rng.choice([1, 2, 3, 5, 8, 64])
    smallest = max(max_num_seqs, 2)
    budget = rng.choice([smallest, smallest + 7, 64, 100, 256, 2048])
    needed = max(-(-(p + o - 1) // block_size) for p, o in zip(prompts, outputs, strict=True))
    options = SchedulerOptions(
        num_blocks=needed + rng.choice([0, 0, 1, 2, needed // 2, needed, 4 * needed, 40 * needed]),
        block_size=block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max(budget, smallest) if chunked else max(budget, max_model_len),
        max_model_len=max_model_len,
        enable_prefix_caching=blocks_per_unit > 1 or rng.random() < 0.8,
        enable_chunked_prefill=chunked,
        policy=policy,
        long_prefill_token_threshold=rng.choice([3, 16, 40, 100]) if long else 0,
        watermark=rng.choice([0.05, 0.2]) if watermark else 0.0,
        scheduler_reserve_full_isl=scheduler_reserve_full_isl,
        async_scheduling=is_async,
    )
    return ParityWorkload(
        group=group,
        options=_fitting(options),
        arrival_step=arrivals(rng, n),
        prompt_tokens=prompts,
        output_tokens=outputs,
        priority=[rng.randint(0, 3) if policy == "priority" else 0 for _ in range(n)],
        unit_tokens=unit_tokens,
        units=units(rng, prompts, unit_tokens),
    )


def _fitting(options: SchedulerOptions) -> SchedulerOptions:
    """Caps the threshold at ``max_model_len``, as vLLM demands."""
    threshold = min(options.long_prefill_token_threshold, options.max_model_len)
    return SchedulerOptions(**asdict(options) | {"long_prefill_token_threshold": threshold})


def prompt_length(rng: Random, longest: int, block_size: int) -> int:
    """Returns a prompt length, often a whole number of blocks: that is where rules bite."""
    length = rng.choice([rng.randint(1, longest), rng.randint(1, max(1, longest // 4)), longest])
    if rng.random() < 0.4:
        length = max(1, length // block_size) * block_size
    return length + rng.choice([0, 0, 0, 1])


def arrivals(rng: Random, n: int) -> list[int]:
    """Returns steps at which requests arrive: bursts, trickles, and pauses longer than a run."""
    gap = rng.choice([0, 1, 4, 15])
    now = rng.choice([0, 3])
    steps = []
    for _ in range(n):
        steps.append(now)
        if rng.random() < 0.7:
            now += rng.randint(0, 2 * gap)
        if rng.random() < 0.03:
            now += 300
    return steps


def units(rng: Random, prompts: list[int], unit_tokens: int) -> list[list[int]]:
    """Draws prefixes from a few families that fork at random depths.

    Some prompts name only the part that is shared: what follows is theirs alone.
    """
    families = rng.choice([1, 2, 4])
    fork_depth = rng.choice([2, 10, 100])
    named: dict[tuple[int, ...], int] = {}
    paths = []
    for index, prompt in enumerate(prompts):
        family, fork = rng.randrange(families), rng.randint(0, fork_depth)
        count = prompt // unit_tokens
        path = tuple(family if i < fork else families + index for i in range(count))
        if rng.random() < 0.2:
            path = path[:fork]
        paths.append([named.setdefault(path[: i + 1], len(named)) for i in range(len(path))])
    return paths
