"""Replays recorded workloads through this project's engine."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.engine.engine import Engine, EngineLimits
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.results import RunResult
from dynosim.sim.workload.columns import Workload

DATA = Path(os.environ.get("DYNOSIM_PARITY_DATA") or Path(__file__).parent / "data")

VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.14"}

Record = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One step: tokens by request, cached tokens of those that entered, preempted, finished."""

    tokens: dict[int, int]
    hits: dict[int, int]
    preempted: list[int]
    finished: list[int]


class UnitTimer:
    """Every step takes one unit of time, so that arrivals are keyed by step."""

    def prefill_attention_s(self, chunk_tokens: int, prefix_tokens: int, /) -> float:
        return 0.0

    def step_s(
        self,
        new_tokens: int,
        num_logits: int,
        prefill_attention_s: float,
        num_decode: int,
        context_tokens: int,
        /,
    ) -> float:
        return 1.0

    def decode_line(self, num_decode: int, context_tokens: int, /) -> tuple[float, float, float]:
        return 1.0, 0.0, float("inf")


# --- their side -------------------------------------------------------------------------------


def load(group: str, engine: str = "vllm") -> list[Record]:
    """Returns the recorded workloads of a group."""
    folder = DATA if engine == "vllm" else DATA / engine
    recording = json.loads(gzip.decompress((folder / f"{group}.json.gz").read_bytes()))
    assert recording["format"] == 1
    assert recording[engine] == VERSIONS[engine], "docstrings name the version observed"
    workloads: list[Record] = recording["workloads"]
    if engine == "sglang":
        for record in workloads:
            record["units"] = [_expanded(runs) for runs in record["units"]]
    return workloads


def _expanded(runs: list[int]) -> list[int]:
    """Returns the numbers of [first, count, ...] runs."""
    return [first + i for first, count in _pairs(runs).items() for i in range(count)]


def recorded_steps(record: Record) -> Iterator[Step]:
    """Yields the steps of the recorded engine."""
    for repeats, tokens, hits, preempted, finished in record["rows"]:
        step = Step(_pairs(tokens), _pairs(hits), preempted, finished)
        for _ in range(repeats):
            yield step


def _pairs(flat: list[int]) -> dict[int, int]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def recorded_tokens(record: Record) -> list[list[int]]:
    """Returns, for every request, the times at which the recorded scheduler got its tokens."""
    prompts, arrivals = record["prompt_tokens"], record["arrival_step"]
    times: list[list[int]] = [[] for _ in prompts]
    computed = [0] * len(prompts)
    now, unfinished = 0, set(range(len(prompts)))
    for step in recorded_steps(record):
        if not any(arrivals[i] <= now for i in unfinished):
            now = min(arrivals[i] for i in unfinished)
        now += 1
        for i, hit in step.hits.items():
            computed[i] = hit
        for i, tokens in step.tokens.items():
            computed[i] += tokens
            if computed[i] == prompts[i] + len(times[i]):
                times[i].append(now)
        unfinished.difference_update(step.finished)
    return times


# --- our side ---------------------------------------------------------------------------------


def engine_limits(record: Record, max_run: int) -> EngineLimits:
    """Returns the recorded options as the engine takes them."""
    options = record["options"]
    return EngineLimits(
        max_num_seqs=options["max_num_seqs"],
        max_num_batched_tokens=options["max_num_batched_tokens"],
        block_size=options["block_size"],
        enable_prefix_caching=options["enable_prefix_caching"],
        enable_chunked_prefill=options["enable_chunked_prefill"],
        scheduling_policy=options["policy"].replace("-", "_"),
        max_run=max_run,
        **{name: options[name] for name in _OWN_OPTIONS if name in options},
    )


def with_block_units(record: Record) -> Record:
    """Returns the workload with every unit cut into KV blocks."""
    size = record["options"]["block_size"]
    every = record["unit_tokens"] // size
    units = [[unit * every + j for unit in path for j in range(every)] for path in record["units"]]
    return record | {"units": units, "unit_tokens": size}


def our_steps(record: Record) -> Iterator[Step]:
    """Yields the engine's own steps for a recorded workload."""
    limits = engine_limits(record, max_run=1)
    per_unit = record["unit_tokens"] // limits.block_size
    engine = Engine(UnitTimer(), limits, record["options"]["num_blocks"], per_unit)
    arrivals = record["arrival_step"]
    now, arrived, unfinished = 0, 0, 0
    while arrived < len(arrivals) or unfinished:
        if not unfinished:
            assert engine.begin(float(now)) is None, "something is left"
            now = max(now, arrivals[arrived])
        while arrived < len(arrivals) and arrivals[arrived] <= now:
            engine.enqueue(_sequence(record, arrived), float(now))
            arrived += 1
            unfinished += 1
        step = _step(engine, now)
        unfinished -= len(step.finished)
        yield step
        now += 1
    assert engine.begin(float(now)) is None, "something is left"
    engine.kv.check()
    assert engine.kv.used_blocks == 0


def _sequence(record: Record, index: int) -> Sequence:
    return Sequence(
        index,
        record["prompt_tokens"][index],
        record["output_tokens"][index],
        record["units"][index],
        record["priority"][index],
    )


def _step(engine: Engine, now: int) -> Step:
    before = {seq: seq.preemptions for seq in engine.running}
    assert engine.begin(float(now)) == now + 1, "the engine is stuck"
    entered = [s for s in engine.running if s not in before or s.preemptions > before[s]]
    preempted = [seq.index for seq, count in before.items() if seq.preemptions > count]
    return Step(
        tokens={seq.index: tokens for seq, tokens in engine.batch()},
        hits={seq.index: seq.computed for seq in entered},
        preempted=sorted(preempted),
        finished=sorted(seq.index for seq in engine.end()),
    )


def run_leaping(record: Record) -> RunResult:
    """Runs a recorded workload on the simulated clock, leaping wherever the engine can."""
    ints = {name: np.asarray(record[name], dtype=np.int64) for name in _COLUMNS}
    units = record["units"]
    workload = Workload(
        name=record["group"],
        arrival_s=ints["arrival_step"].astype(np.float64),
        input_tokens=ints["prompt_tokens"],
        output_tokens=ints["output_tokens"],
        prefix_ids=np.asarray([unit for path in units for unit in path], dtype=np.int64),
        prefix_offsets=np.cumsum([0, *map(len, units)], dtype=np.int64),
        prefix_block_tokens=record["unit_tokens"],
        priority=ints["priority"],
    )
    options = record["options"]
    spec = ClusterSpec(
        timer=UnitTimer(),
        limits=engine_limits(record, max_run=1 << 40),
        num_blocks=options["num_blocks"],
        max_model_len=options["max_model_len"],
    )
    return run_cluster(spec, workload.check())


_OWN_OPTIONS = (
    "scheduler",
    "long_prefill_token_threshold",
    "watermark",
    "scheduler_reserve_full_isl",
    "async_scheduling",
    "enable_mixed_chunk",
    "schedule_conservativeness",
)
_COLUMNS = ("arrival_step", "prompt_tokens", "output_tokens", "priority")
