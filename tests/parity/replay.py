"""Replays recorded workloads through this project's engine, one step at a time."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynosim.sim.engine.engine import Engine, EngineLimits
from dynosim.sim.engine.kv_cache import KvCache
from dynosim.sim.engine.sequence import Sequence

DATA = Path(__file__).parent / "data"


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

    def step_s(self, *_: float) -> float:
        return 1.0

    def decode_line(self, num_decode: int, context_tokens: int, /) -> tuple[float, float, float]:
        return 1.0, 0.0, float("inf")


def load(group: str) -> dict[str, Any]:
    """Returns a recorded group: ``vllm`` version and ``workloads``."""
    recording: dict[str, Any] = json.loads(gzip.decompress((DATA / f"{group}.json.gz").read_bytes()))
    assert recording["format"] == 1
    return recording


def recorded_steps(record: dict[str, Any]) -> Iterator[Step]:
    """Yields vLLM's steps."""
    for repeats, tokens, hits, preempted, finished in record["rows"]:
        step = Step(_pairs(tokens), _pairs(hits), preempted, finished)
        for _ in range(repeats):
            yield step


def _pairs(flat: list[int]) -> dict[int, int]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def engine_limits(record: dict[str, Any], max_run: int) -> EngineLimits:
    """Returns the recorded options as the engine takes them."""
    options = record["options"]
    return EngineLimits(
        max_num_seqs=options["max_num_seqs"],
        max_num_batched_tokens=options["max_num_batched_tokens"],
        block_size=options["block_size"],
        enable_prefix_caching=options["enable_prefix_caching"],
        enable_chunked_prefill=options["enable_chunked_prefill"],
        scheduling_policy=options["policy"],
        long_prefill_token_threshold=options["long_prefill_token_threshold"],
        watermark=options["watermark"],
        scheduler_reserve_full_isl=options["scheduler_reserve_full_isl"],
        max_run=max_run,
    )


def our_steps(record: dict[str, Any]) -> Iterator[Step]:
    """Yields the engine's own steps for a recorded workload."""
    limits = engine_limits(record, max_run=1)
    kv = KvCache(record["options"]["num_blocks"], record["unit_tokens"] // limits.block_size)
    engine = Engine(UnitTimer(), limits, kv)
    arrivals = record["arrival_step"]
    units = record["units"] if limits.enable_prefix_caching else [[] for _ in arrivals]
    now, arrived, unfinished = 0, 0, 0
    while arrived < len(arrivals) or unfinished:
        if not unfinished:
            now = max(now, arrivals[arrived])
        while arrived < len(arrivals) and arrivals[arrived] <= now:
            engine.waiting.append(
                Sequence(
                    arrived,
                    record["prompt_tokens"][arrived],
                    record["output_tokens"][arrived],
                    units[arrived],
                    record["priority"][arrived],
                )
            )
            arrived += 1
            unfinished += 1
        step = _step(engine, now)
        unfinished -= len(step.finished)
        yield step
        now += 1
    kv.check()
    assert kv.used_blocks == 0


def _step(engine: Engine, now: int) -> Step:
    before = {seq: (seq.preemptions, seq.order) for seq in engine.running}
    assert engine.begin(float(now)) == now + 1, "the engine is stuck"
    entered = [seq for seq in engine.running if seq not in before or seq.order > before[seq][1]]
    preempted = [seq.index for seq, (count, _) in before.items() if seq.preemptions > count]
    return Step(
        tokens={seq.index: tokens for seq, tokens in engine.batch()},
        hits={seq.index: seq.computed for seq in entered},
        preempted=sorted(preempted),
        finished=sorted(seq.index for seq in engine.end()),
    )
