"""Two pools and autoscalers in the vendors' own words, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.export import export
from dynosim.sim.deployment import Deployment


def pools(backend: str = "vllm", **fields: Any) -> Deployment:
    named = {
        "model": "Qwen/Qwen3-32B",
        "gpu": "h200",
        "tensor_parallel_size": 2,
        "replicas": 2,
        "max_num_seqs": 64,
        "prefill_replicas": 3,
        "prefill_tensor_parallel_size": 4,
        "prefill_max_num_batched_tokens": 8192,
    }
    return Deployment(backend=backend, **(named | fields))


def objects(deployment: Deployment) -> dict[tuple[str, str], dict[str, Any]]:
    text = export(deployment, "k8s")["deployment.yaml"]
    found = [one for one in yaml.safe_load_all(text) if one is not None]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def command(deployment: dict[str, Any]) -> list[str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    words: list[str] = container["command"]
    return words


def after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


QUEUE = {
    "prefill_autoscaler": "keda",
    "prefill_autoscaler_metric": "queue",
    "prefill_autoscaler_target": 4.0,
    "prefill_max_replicas": 6,
}
KV = {
    "autoscaler": "target_tracking",
    "autoscaler_metric": "kv_use",
    "autoscaler_target": 0.7,
    "autoscaler_down_window_s": 60.0,
    "max_replicas": 4,
}


# --- engines -----------------------------------------------------------------------------------


def test_vllm_has_a_producer_a_consumer_and_a_router() -> None:
    files = export(pools(), "vllm")
    assert sorted(files) == ["decode.sh", "prefill.sh", "router.sh"]
    assert '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}' in files["prefill.sh"]
    assert '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}' in files["decode.sh"]
    assert "--tensor-parallel-size 4" in files["prefill.sh"]
    assert "--tensor-parallel-size 2" in files["decode.sh"]
    assert "--max-num-batched-tokens 8192" not in files["decode.sh"]
    assert "--vllm-pd-disaggregation" in files["router.sh"]
    assert '--prefill "${PREFILL_2}"' in files["router.sh"]
    assert "DECODE_2" not in files["router.sh"]


def test_sglang_has_a_mode_of_each_and_a_port_to_ask_at() -> None:
    files = export(pools("sglang"), "sglang")
    assert "--disaggregation-mode prefill" in files["prefill.sh"]
    assert "--disaggregation-mode decode" in files["decode.sh"]
    assert '--prefill "${PREFILL_0}" 8998' in files["router.sh"]
    assert '--decode "${DECODE_1}"\n' in files["router.sh"]


def test_a_load_is_sent_to_two_pools_as_to_one() -> None:
    one = Deployment(model="Qwen/Qwen3-32B", gpu="h200")
    two = Deployment(model="Qwen/Qwen3-32B", gpu="h200", prefill_replicas=1)
    for target in ("aiperf", "guidellm", "vllm-bench"):
        assert export(two, target) == export(one, target)


# --- Kubernetes --------------------------------------------------------------------------------


def test_kubernetes_has_a_deployment_of_each_pool_and_a_router_that_finds_their_pods() -> None:
    found = objects(pools())
    label = "qwen3-32b-vllm"
    prefill, decode = (found["Deployment", f"{label}-{role}"] for role in ("prefill", "decode"))
    assert (prefill["spec"]["replicas"], decode["spec"]["replicas"]) == (3, 2)
    assert prefill["spec"]["template"]["metadata"]["labels"] == {"app": label, "role": "prefill"}
    (container,) = prefill["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
    host = {
        "name": "VLLM_NIXL_SIDE_CHANNEL_HOST",
        "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
    }
    assert host in container["env"]
    assert json.loads(after(command(decode), "--kv-transfer-config"))["kv_role"] == "kv_consumer"
    words = command(found["Deployment", f"{label}-router"])
    at = words.index("--prefill-selector")
    assert words[at + 1 : at + 3] == [f"app={label}", "role=prefill"]
    assert found["Service", label]["spec"]["selector"] == {"app": f"{label}-router"}
    assert {"Role", "RoleBinding", "ServiceAccount"} <= {kind for kind, _ in found}


def test_sglang_pods_say_where_kv_is_asked_for() -> None:
    found = objects(pools("sglang"))
    template = found["Deployment", "qwen3-32b-sglang-prefill"]["spec"]["template"]
    assert template["metadata"]["annotations"] == {"sglang.ai/bootstrap-port": "8998"}


def test_each_pool_has_its_autoscaler() -> None:
    found = objects(pools(**KV, **QUEUE))
    prefill = found["ScaledObject", "qwen3-32b-vllm-prefill"]["spec"]
    assert (prefill["minReplicaCount"], prefill["maxReplicaCount"]) == (1, 6)
    assert prefill["scaleTargetRef"] == {"name": "qwen3-32b-vllm-prefill"}
    (trigger,) = prefill["triggers"]
    assert trigger["type"] == "prometheus"
    query = 'sum(vllm:num_requests_waiting{pod=~"qwen3-32b-vllm-prefill-.*"})'
    assert trigger["metadata"]["query"] == query
    assert trigger["metadata"]["threshold"] == "4"
    decode = found["HorizontalPodAutoscaler", "qwen3-32b-vllm-decode"]["spec"]
    (metric,) = decode["metrics"]
    assert metric["pods"] == {
        "metric": {"name": "vllm_kv_cache_usage_perc"},
        "target": {"type": "AverageValue", "averageValue": "700m"},
    }
    windows = {way: one["stabilizationWindowSeconds"] for way, one in decode["behavior"].items()}
    assert windows == {"scaleUp": 0, "scaleDown": 60}


def test_one_pool_has_its_autoscaler_too() -> None:
    fields = {"model": "Qwen/Qwen3-32B", "gpu": "h200"} | KV
    kinds = [kind for kind, _ in objects(Deployment(**fields))]
    assert kinds == ["Deployment", "HorizontalPodAutoscaler", "Service"]
    sums = fields | {"autoscaler": "keda", "autoscaler_metric": "concurrency"}
    found = objects(Deployment(**sums))["ScaledObject", "qwen3-32b-vllm"]
    query = found["spec"]["triggers"][0]["metadata"]["query"]
    assert query.count("sum(") == 2


# --- Dynamo ------------------------------------------------------------------------------------


def graph(deployment: Deployment) -> dict[str, dict[str, Any]]:
    (found,) = yaml.safe_load_all(export(deployment, "dynamo")["dynamo.yaml"])
    return {one["name"]: one for one in found["spec"]["components"]}


def arguments(component: dict[str, Any]) -> list[str]:
    (container,) = component["podTemplate"]["spec"]["containers"]
    words: list[str] = container["args"]
    return words


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_dynamo_has_a_component_of_each_pool(backend: str) -> None:
    found = graph(pools(backend))
    assert list(found) == ["Frontend", "DecodeWorker", "PrefillWorker"]
    prefill, decode = found["PrefillWorker"], found["DecodeWorker"]
    assert (prefill["type"], prefill["replicas"]) == ("prefill", 3)
    assert (decode["type"], decode["replicas"]) == ("decode", 2)
    assert after(arguments(prefill), "--disaggregation-mode") == "prefill"
    assert after(arguments(decode), "--disaggregation-mode") == "decode"
    if backend == "vllm":
        assert "kv_both" in after(arguments(decode), "--kv-transfer-config")


SLO = {
    "autoscaler": "threshold",
    "autoscaler_metric": "slo_attainment",
    "autoscaler_target": 0.9,
    "autoscaler_slo_ttft_ms": 500.0,
    "autoscaler_slo_tpot_ms": 30.0,
    "autoscaler_interval_s": 5.0,
    "max_replicas": 4,
}


def test_dynamos_planner_aims_at_the_limits_of_both_pools() -> None:
    found = graph(pools(**SLO, prefill_max_replicas=3))
    config = json.loads(after(arguments(found["Planner"]), "--config"))
    assert found["Planner"]["type"] == "planner"
    assert config["mode"] == "disagg"
    assert config["optimization_target"] == "sla"
    assert (config["ttft_ms"], config["itl_ms"]) == (500.0, 30.0)
    assert config["load_adjustment_interval_seconds"] == 5
    assert config["max_gpu_budget"] == 4 * 2 + 3 * 4
    assert (config["prefill_engine_num_gpu"], config["decode_engine_num_gpu"]) == (4, 2)


def test_dynamos_planner_holds_kv_use_of_the_pool_that_decodes() -> None:
    own = {
        "autoscaler": "threshold",
        "autoscaler_metric": "kv_use",
        "autoscaler_target": 0.8,
        "max_replicas": 4,
        "prefill_autoscaler": "none",
    }
    config = json.loads(after(arguments(graph(pools(**own))["Planner"]), "--config"))
    assert config["mode"] == "decode"
    assert config["optimization_target"] == "load"
    assert (config["decode_scale_up_kv_rate"], config["decode_scale_down_kv_rate"]) == (80.0, 40.0)
    assert config["max_gpu_budget"] == 4 * 2 + 3 * 4


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "fields", "where"),
    [
        ("vllm", {"local_prefill_below_tokens": 50}, "local_prefill_below_tokens"),
        ("vllm", {"kv_transfer_overlap": "layer"}, "kv_transfer_overlap"),
        ("vllm", {"router": "prefix_hash"}, "router"),
        ("vllm", {"router": "round_robin", "prefill_router": "prefix_hash"}, "prefill_router"),
        ("vllm", {"autoscaler": "keda"}, "autoscaler"),
        ("nim", {}, "prefill_replicas"),
        ("trtllm", {"backend": "trtllm"}, "prefill_replicas"),
        ("k8s", {"backend": "trtllm"}, "prefill_replicas"),
        ("k8s", SLO, "autoscaler"),
        ("k8s", KV | {"prefill_autoscaler": "scheduled"}, "prefill_autoscaler"),
        ("k8s", KV | {"autoscaler_metric": "concurrency"}, "autoscaler_metric"),
        ("k8s", KV | {"autoscaler_cooldown_s": 9.0}, "autoscaler_cooldown_s"),
        ("k8s", KV | QUEUE | {"prefill_min_replicas": 0}, "prefill_min_replicas"),
        ("k8s", KV | {"warm_replicas": 1}, "warm_replicas"),
        ("dynamo", KV, "autoscaler"),
        ("dynamo", {"prefill_router": "random"}, "prefill_router"),
        ("dynamo", SLO | {"prefill_min_replicas": 2}, "prefill_min_replicas"),
        ("dynamo", SLO | {"autoscaler_cooldown_s": 9.0}, "autoscaler_cooldown_s"),
        ("dynamo", SLO | {"autoscaler_metric": "kv_use"}, "autoscaler_metric"),
    ],
)
def test_what_a_target_has_no_word_for_is_refused_by_its_key(
    target: str, fields: dict[str, Any], where: str
) -> None:
    with pytest.raises(UserError) as refused:
        export(pools(**fields), target)
    assert refused.value.where == where
