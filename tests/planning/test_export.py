"""Targets say in their own words what the candidate says, or refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.nim import from_nim_environment
from dynosim.planning.exports.export import export, targets
from dynosim.planning.exports.knobs import launch_card
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec


def engine(backend: str, **fields: Any) -> Deployment:
    named = {"model": "Qwen/Qwen3-32B", "gpu": "h200"} | fields
    return Deployment(backend=backend, **named)


def words(text: str) -> list[str]:
    return text.replace("\\\n", " ").split()


def value_after(text: str, flag: str) -> str:
    found = words(text)
    return found[found.index(flag) + 1]


def test_every_target_is_listed() -> None:
    expected = "aiperf dynamo guidellm inference-perf k8s nim sglang trtllm vllm vllm-bench"
    assert " ".join(targets()) == expected


@pytest.mark.parametrize("target", ["vllm", "k8s", "dynamo", "nim"])
def test_a_plain_vllm_candidate_has_files(target: str) -> None:
    files = export(engine("vllm", tensor_parallel_size=2, max_num_seqs=64), target)
    assert all(files.values())


def test_sglang_counts_for_all_ranks() -> None:
    given = {"tensor_parallel_size": 4, "data_parallel_size": 2, "enable_expert_parallel": True}
    moe = engine("sglang", model="Qwen/Qwen3-235B-A22B-FP8", max_num_seqs=100, **given)
    text = export(moe, "sglang")["serve.sh"]
    assert value_after(text, "--tp-size") == "8"
    assert value_after(text, "--ep-size") == "8"
    assert value_after(text, "--max-running-requests") == "200"
    assert "--enable-dp-attention" in text


def test_sglang_names_what_is_off() -> None:
    off = {"enable_prefix_caching": False, "async_scheduling": False, "cuda_graph_padding": False}
    text = export(engine("sglang", scheduling_policy="dfs_weight", **off), "sglang")["serve.sh"]
    for flag in (
        "--disable-radix-cache",
        "--disable-overlap-schedule",
        "--disable-cuda-graph-padding",
    ):
        assert flag in text
    assert value_after(text, "--schedule-policy") == "dfs-weight"


def test_trtllm_splits_flags_and_options() -> None:
    files = export(
        engine(
            "trtllm",
            tensor_parallel_size=2,
            max_num_seqs=64,
            kv_cache_dtype="fp8",
            enable_chunked_prefill=True,
            scheduling_policy="max_utilization",
        ),
        "trtllm",
    )
    assert value_after(files["serve.sh"], "--tp_size") == "2"
    assert value_after(files["serve.sh"], "--max_batch_size") == "64"
    assert yaml.safe_load(files["extra_llm_api_options.yaml"]) == {
        "kv_cache_config": {"dtype": "fp8"},
        "enable_chunked_prefill": True,
        "scheduler_config": {"capacity_scheduler_policy": "MAX_UTILIZATION"},
    }


def test_a_nim_reads_its_environment_back() -> None:
    fields = {
        "tensor_parallel_size": 2,
        "max_model_len": 8192,
        "max_num_seqs": 64,
        "kv_cache_dtype": "fp8",
        "enable_chunked_prefill": True,
    }
    text = export(engine("vllm", **fields), "nim")["nim.env"]
    environment = dict(line.split("=", 1) for line in text.splitlines())
    read = from_nim_environment(environment)
    assert {name: read[name] for name in fields} == fields
    assert (read["backend"], read["model"]) == ("vllm", "Qwen/Qwen3-32B")


def test_kubernetes_has_the_replicas_the_gpus_and_no_anchors() -> None:
    text = export(engine("vllm", tensor_parallel_size=2, replicas=3), "k8s")["deployment.yaml"]
    deployment, service = yaml.safe_load_all(text)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert deployment["spec"]["replicas"] == 3
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert container["command"][:3] == ["vllm", "serve", "Qwen/Qwen3-32B"]
    assert service["spec"]["selector"] == {"app": deployment["metadata"]["name"]}
    assert "&id" not in text


def test_dynamo_has_its_kv_router_and_its_options() -> None:
    routed = engine("vllm", replicas=2, router="kv_aware", router_temperature=0.2)
    (graph,) = yaml.safe_load_all(export(routed, "dynamo")["dynamo.yaml"])
    frontend, worker = graph["spec"]["components"]
    (container,) = frontend["podTemplate"]["spec"]["containers"]
    assert container["args"] == ["--router-mode", "kv", "--router-temperature", "0.2"]
    assert worker["replicas"] == 2


def test_kubernetes_mounts_the_options_of_trtllm() -> None:
    text = export(engine("trtllm", enable_chunked_prefill=True), "k8s")["deployment.yaml"]
    options, deployment, _ = yaml.safe_load_all(text)
    assert options["kind"] == "ConfigMap"
    command = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[-1] == "/config/extra_llm_api_options.yaml"


@pytest.mark.parametrize(
    ("target", "fields", "problem"),
    [
        ("vllm", {"backend": "sglang"}, "does not run sglang"),
        ("vllm", {"backend": "vllm", "schedule_conservativeness": 0.5}, "has no such knob"),
        ("vllm", {"backend": "vllm", "load_balance_method": "round_robin"}, "has no such knob"),
        (
            "vllm",
            {"backend": "vllm", "backend_version": "0.9.0", "async_scheduling": True},
            "0.9.0 does not know --async-scheduling",
        ),
        (
            "vllm",
            {"backend": "vllm", "backend_version": "0.9.0", "kv_cache_dtype": "bfloat16"},
            "0.9.0 does not know 'bfloat16'",
        ),
        ("sglang", {"backend": "sglang", "long_prefill_token_threshold": 9}, "has no such knob"),
        ("trtllm", {"backend": "trtllm", "backend_version": "0.9.0"}, "built beforehand"),
        ("trtllm", {"backend": "trtllm", "quantization": "fp8"}, "quantised already"),
        ("nim", {"backend": "vllm", "block_size": 32}, "no variable"),
        ("dynamo", {"backend": "vllm", "router": "least_outstanding"}, "no router"),
        ("dynamo", {"backend": "vllm", "router_max_waiting": 9}, "no such option"),
        ("vllm", {"backend": "vllm", "autoscaler": "queue"}, "has no such knob"),
        ("vllm", {"backend": "vllm", "kv_host_gib": 10.0}, "has no such knob"),
    ],
)
def test_what_a_target_has_no_word_for_is_refused(
    target: str, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UserError, match=problem):
        export(engine(**fields), target)


def test_all_problems_are_told_at_once() -> None:
    old = engine("vllm", backend_version="0.9.0", async_scheduling=True, api_server_count=2)
    with pytest.raises(UserError, match=r"(?s)async_scheduling.*api_server_count"):
        export(old, "vllm")


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_launch_cards_name_fields_that_there_are_each_once(backend: str) -> None:
    card = launch_card(backend)
    named = [*card["fields"], *card["elsewhere"], *card["simulation_only"]]
    assert set(named) <= set(Deployment.__dataclass_fields__)
    assert len(named) == len(set(named))


LOAD = WorkloadSpec(
    random_input_len=2000, random_output_len=300, random_range_ratio=0.2, num_prompts=64
)


def test_one_load_in_three_spellings() -> None:
    rate = replace(LOAD, request_rate=4.0)
    limits = {"ttft": 500.0}
    candidate = engine("vllm")
    bench = export(candidate, "vllm-bench", workload=rate, goodput_ms=limits)["bench.sh"]
    assert value_after(bench, "--random-range-ratio") == "0.2"
    assert value_after(bench, "--goodput") == "ttft:500"
    aiperf = export(candidate, "aiperf", workload=rate, goodput_ms=limits)["bench.sh"]
    # Half-width 0.2 of a uniform draw is a deviation of 0.2 / sqrt(3).
    assert value_after(aiperf, "--isl-stddev") == "231"
    assert value_after(aiperf, "--arrival-pattern") == "poisson"
    guidellm = export(candidate, "guidellm", workload=rate)["bench.sh"]
    assert "kind=poisson,rate=4" in guidellm
    assert "prompt_tokens=2000,output_tokens=300,prompt_tokens_stdev=231" in guidellm


def inference_perf(load: WorkloadSpec, **limits: float) -> dict[str, Any]:
    files = export(engine("vllm"), "inference-perf", workload=load, goodput_ms=limits)
    assert "inference-perf \\\n  --config_file inference-perf.yaml" in files["bench.sh"]
    found: dict[str, Any] = yaml.safe_load(files["inference-perf.yaml"])
    return found


def test_inference_perf_takes_stages_and_distributions() -> None:
    found = inference_perf(replace(LOAD, request_rate=4.0), ttft=500.0, e2el=9000.0)
    assert found["load"]["type"] == "poisson"
    assert found["load"]["stages"] == [{"rate": 4.0, "duration": 16}]
    # 2000 tokens plus or minus a fifth.
    prompts = {"type": "uniform", "min": 1600, "max": 2400, "mean": 2000.0, "std_dev": 230.94}
    assert found["data"]["input_distribution"] == {**prompts, "total_count": 64}
    assert found["server"]["ignore_eos"] is True
    assert found["report"]["goodput"]["constraints"] == {"ttft": 0.5, "request_latency": 9.0}


def test_inference_perf_keeps_requests_in_flight_and_shares_prefixes() -> None:
    shared = replace(
        LOAD, random_range_ratio=None, max_concurrency=8, random_prefix_len=512, num_prefixes=3
    )
    found = inference_perf(shared)
    assert found["load"]["stages"] == [{"num_requests": 64, "concurrency_level": 8}]
    fixed = {"type": "fixed", "min": 300, "max": 300, "mean": 300.0, "std_dev": 0.0}
    prefix = found["data"]["shared_prefix"]
    assert (prefix["num_groups"], prefix["num_prompts_per_group"]) == (3, 22)
    assert (prefix["system_prompt_len"], prefix["output_len"]) == (512, fixed)


def test_inference_perf_refuses_what_it_cannot_send(checkout: Path) -> None:
    trace = WorkloadSpec(trace=str(checkout / "examples/traces/chat_mooncake.jsonl"))
    for load, problem in (
        (trace, "inference-perf cannot send it"),
        (replace(LOAD, request_rate=2.0, burstiness=0.5), "no arrivals of burstiness 0.5"),
        (replace(LOAD, request_rate=2.0, max_concurrency=3), "with a rate cannot send it"),
    ):
        with pytest.raises(UserError, match=problem):
            inference_perf(load)


@pytest.mark.parametrize("tool", ["aiperf", "guidellm", "inference-perf", "vllm-bench"])
@pytest.mark.parametrize("fields", [{"num_turns": 3}, {"request_rates": "0:2, 60:20"}])
def test_no_tool_leaves_turns_or_changing_rates_out(tool: str, fields: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="cannot send it"):
        export(engine("vllm"), tool, workload=replace(LOAD, **fields))


def test_the_inferencex_convention_is_recentred_for_vllm() -> None:
    # 0.8 L to L is 0.9 L plus or minus a ninth of it.
    load = WorkloadSpec(
        random_input_len=1000,
        random_output_len=100,
        random_range_ratio=0.8,
        random_range_convention="inferencex",
    )
    text = export(engine("vllm"), "vllm-bench", workload=load)["bench.sh"]
    assert value_after(text, "--random-input-len") == "900"
    assert float(value_after(text, "--random-range-ratio")) == pytest.approx(1 / 9, rel=1e-4)


def test_a_trace_is_replayed_by_the_tools_that_can(checkout: Path) -> None:
    load = WorkloadSpec(trace=str(checkout / "examples/traces/chat_mooncake.jsonl"))
    assert "timed_trace" in export(engine("vllm"), "vllm-bench", workload=load)["bench.sh"]
    assert "mooncake_trace" in export(engine("vllm"), "aiperf", workload=load)["bench.sh"]
    with pytest.raises(UserError, match="guidellm cannot send it"):
        export(engine("vllm"), "guidellm", workload=load)
    azure = WorkloadSpec(trace=str(checkout / "examples/traces/azure_like.csv"))
    with pytest.raises(UserError, match="does not read the format azure"):
        export(engine("vllm"), "aiperf", workload=azure)
