"""Timed runs of the simulator's core: ``pytest benchmarks``."""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.random_streams import stream
from dynosim.sim.workload.columns import Workload


class Law:
    """A polynomial step law: no table look-ups, so that only the event loop is timed."""

    def prefill_attention_s(self, chunk_tokens: int, prefix_tokens: int, /) -> float:
        return 1e-10 * chunk_tokens * (prefix_tokens + 0.5 * chunk_tokens)

    def step_s(
        self,
        new_tokens: int,
        num_logits: int,
        prefill_attention_s: float,
        num_decode: int,
        context_tokens: int,
        /,
    ) -> float:
        return 0.006 + 2e-5 * new_tokens + prefill_attention_s + 4.5e-8 * context_tokens

    def decode_line(self, num_decode: int, context_tokens: int, /) -> tuple[float, float, float]:
        return self.step_s(num_decode, 0, 0.0, num_decode, context_tokens), 4.5e-8, float("inf")


def chat(num_requests: int, rate: float) -> Workload:
    """Returns Poisson arrivals with lognormal lengths of a chat service."""
    rng = stream(1, "benchmark")
    return Workload(
        name="chat",
        arrival_s=np.cumsum(rng.exponential(1 / rate, num_requests)),
        input_tokens=np.maximum(1, rng.lognormal(6.7, 0.9, num_requests)).astype(np.int64),
        output_tokens=np.maximum(1, rng.lognormal(5.0, 0.8, num_requests)).astype(np.int64),
        prefix_ids=np.empty(0, dtype=np.int64),
        prefix_offsets=np.zeros(num_requests + 1, dtype=np.int64),
    )


@pytest.mark.parametrize(("name", "rate"), [("calm", 2.0), ("busy", 12.0), ("saturated", 60.0)])
def test_poisson_chat(benchmark: BenchmarkFixture, name: str, rate: float) -> None:
    load = chat(5_000, rate)
    limits = EngineLimits(max_num_seqs=256, max_num_batched_tokens=8192)
    spec = ClusterSpec(timer=Law(), limits=limits, num_blocks=40_000, max_model_len=1 << 20)
    result = benchmark.pedantic(run_cluster, (spec, load), rounds=3, warmup_rounds=1)
    benchmark.extra_info["load"] = name
    benchmark.extra_info["requests_per_cpu_s"] = len(load) / benchmark.stats["min"]
    assert result.completed.all()
