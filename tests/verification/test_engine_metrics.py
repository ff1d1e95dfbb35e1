"""What vLLM counts of itself, from its Prometheus page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dynosim.verification.load.engine_metrics import EngineMetrics, facts, notes, parse
from loads import plan

PAGE = """\
# HELP vllm:prefix_cache_hits_total Prefix cache hits, in terms of number of cached tokens.
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="a \\"b\\" {c}"} 30.0
vllm:prefix_cache_hits_total{engine="1",model_name="m"} 1.2e+01
vllm:prefix_cache_queries_total{engine="0"} 100
vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_waiting{engine="0"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 1.0
vllm:num_preemptions_total{engine="0"} 0.0
vllm:request_success_total{engine="0",finished_reason="stop"} 1.0
vllm:request_success_total{engine="0",finished_reason="length"} 6.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="1000"} 1.0
vllm:e2e_request_latency_seconds_bucket{le="+Inf"} NaN
python_gc_objects_collected_total 4.0
vllm:broken{
"""


def test_values_are_summed_over_engines_and_labels() -> None:
    found = parse(PAGE)
    assert found is not None
    assert found.values["vllm:prefix_cache_hits_total"] == 42
    assert found.values["vllm:request_success_total"] == 7
    assert found.unfinished == 3
    assert found.kv_cache_tokens == 32_000
    assert "python_gc_objects_collected_total" not in found.values


def test_a_page_of_another_engine_tells_nothing() -> None:
    assert parse("sglang:num_running_reqs 3\n") is None


def engine(
    hits: float = 0, preemptions: float = 0, done: float = 0, running: float = 0
) -> EngineMetrics:
    values = {
        "vllm:prefix_cache_hits_total": hits,
        "vllm:prefix_cache_queries_total": 400.0,
        "vllm:num_preemptions_total": preemptions,
        "vllm:request_success_total": done,
        "vllm:num_requests_running": running,
    }
    return EngineMetrics(values=values, kv_cache_tokens=4096)


# 100 requests of 4 tokens, of which 8 in all are shared.
LOAD = replace(plan(100), shared_tokens=8)


def test_facts_are_what_happened_in_between() -> None:
    assert facts(engine(hits=5, preemptions=1), engine(hits=25, preemptions=3)) == {
        "preemptions": 2,
        "prefix_cache_hit_tokens": 20,
        "prefix_cache_query_tokens": 0,
        "kv_cache_tokens": 4096,
    }


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (engine(), engine(hits=8, done=100), []),
        (engine(running=2), engine(done=100), ["2 requests of others were in the engine at"]),
        (engine(done=5), engine(done=112), ["the engine answered 7 requests of others meanwhile"]),
        (engine(), engine(preemptions=3, hits=400, done=100), ["3 preemptions"]),
        (engine(hits=9), engine(hits=217, done=100), ["the prefix cache was warm: it had 50%"]),
    ],
)
def test_what_a_reader_should_know(
    before: EngineMetrics, after: EngineMetrics, wanted: list[str]
) -> None:
    found = notes(before, after, LOAD)
    assert len(found) == len(wanted)
    assert all(note.startswith(start) for note, start in zip(found, wanted, strict=True))
