"""The YAML of a space: what is accepted, and what a mistake is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.search import SearchSpace, load_space, parse_space
from dynosim.search.objective import DEFAULT_OBJECTIVES, Objective
from dynosim.search.slo import Slo, goodput_limits
from dynosim.sim.deployment import Deployment

MINIMAL: dict[str, Any] = {"model": "Qwen/Qwen3-32B", "gpu": "h200_sxm"}


def space(**values: Any) -> SearchSpace:
    return parse_space({**MINIMAL, **values})


def values_of(name: str, written: Any) -> tuple[Any, ...]:
    found = space(**{name: written})
    return next(d.values for d in found.dimensions if d.name == name)


def refusal(**values: Any) -> str:
    with pytest.raises(UserError) as error:
        space(**values)
    return str(error.value)


def test_a_minimal_space_is_one_candidate_with_defaults() -> None:
    found = space()
    assert found.size == 1
    assert list(found.deployments()) == [Deployment(model="Qwen/Qwen3-32B", gpu="h200_sxm")]
    assert found.objectives == DEFAULT_OBJECTIVES
    assert (found.n_trials, found.seed, found.max_gpus, found.slos) == (200, 0, None, ())


@pytest.mark.parametrize(
    ("name", "written", "expected"),
    [
        ("replicas", 3, (3,)),
        ("replicas", [4, 1], (4, 1)),
        ("replicas", {"options": [1, 2]}, (1, 2)),
        ("replicas", {"min": 1, "max": 4}, (1, 2, 3, 4)),
        ("replicas", {"min": 1, "max": 8, "step": 3}, (1, 4, 7)),
        ("replicas", {"min": 5, "max": 5}, (5,)),
        ("max_num_seqs", {"min": 16, "max": 128, "log": True}, (16, 32, 64, 128)),
        ("max_num_seqs", {"min": 16, "max": 127, "log": True}, (16, 32, 64)),
        ("max_num_seqs", {"min": 1, "max": 1000, "log": True, "step": 10}, (1, 10, 100, 1000)),
        ("max_num_seqs", {"min": 1, "max": 4, "log": True, "step": 1.5}, (1, 2, 3)),
        ("gpu_memory_utilization", {"min": 0.8, "max": 0.95, "step": 0.05}, (0.8, 0.85, 0.9, 0.95)),
        ("gpu_memory_utilization", [0.9, 1], (0.9, 1.0)),
        ("max_model_len", [None, 8192], (None, 8192)),
        ("enable_prefix_caching", [True, False], (True, False)),
        ("kv_cache_dtype", ["auto", "fp8"], ("auto", "fp8")),
    ],
)
def test_a_dimension_may_be_a_value_a_list_options_or_a_range(
    name: str, written: Any, expected: tuple[Any, ...]
) -> None:
    found = values_of(name, written)
    assert found == expected
    assert [type(v) for v in found] == [type(v) for v in expected]


@pytest.mark.parametrize("key", ["tensor-parallel-size", "tensor_parallel_size", "tp"])
def test_spellings_of_a_key(key: str) -> None:
    assert values_of("tensor_parallel_size", 2) == (2,)
    assert space(**{key: [1, 2]}).size == 2


def test_order_of_candidates_does_not_depend_on_the_order_of_keys() -> None:
    one = space(replicas=[1, 2], tensor_parallel_size=[1, 2])
    two = space(tensor_parallel_size=[1, 2], replicas=[1, 2])
    assert list(one.deployments()) == list(two.deployments())
    shapes = [(d.tensor_parallel_size, d.replicas) for d in one.deployments()]
    assert shapes == [(1, 1), (1, 2), (2, 1), (2, 2)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tensor_parallel_size": -1}, "tensor_parallel_size: found -1"),
        ({"tensor_parallel_size": 0}, "allowed: a whole number ≥ 1"),
        ({"tensor_parallel_size": "2"}, "found '2'"),
        ({"tensor_parallel_size": True}, "found True"),
        ({"tensor_parallel_size": 2.0}, "found 2.0"),
        ({"tensor_parallel_size": None}, "found None"),
        ({"tensor_parallel_size": []}, "tensor_parallel_size: empty list"),
        ({"tensor_parallel_size": {"options": []}}, "tensor_parallel_size.options: empty list"),
        ({"tensor_parallel_size": [1, [2]]}, "tensor_parallel_size[1]: found [2]"),
        ({"tensor_parallel_size": [1, 2, 1]}, "tensor_parallel_size[2]: 1 stands twice"),
        ({"replicas": {"min": 4, "max": 2}}, "min 4 is larger than max 2"),
        ({"replicas": {"min": 1}}, "replicas: max is missing"),
        ({"replicas": {}}, "min is missing"),
        ({"replicas": {"min": 1, "max": 4, "step": 0}}, "replicas.step: found 0"),
        ({"replicas": {"min": 1, "max": 4, "step": 0.5}}, "a whole number ≥ 1"),
        ({"replicas": {"min": 1, "max": 4, "log": True, "step": 1}}, "a factor > 1"),
        ({"replicas": {"min": 1, "max": 4, "log": "yes"}}, "allowed: true or false"),
        ({"replicas": {"min": 1, "max": 4, "stpe": 1}}, "nearest: step"),
        ({"replicas": {"min": 1, "max": 10**9}}, "at most 10000"),
        ({"replicas": {"options": [1], "min": 1}}, "unknown key beside options"),
        ({"gpu_memory_utilization": float("nan")}, "found nan"),
        ({"gpu_memory_utilization": [0.9, 1.5]}, "gpu_memory_utilization[1]: found 1.5"),
        ({"gpu_memory_utilization": {"min": 0.8, "max": 0.9}}, "step is missing"),
        ({"backend": {"min": 1, "max": 2}}, "backend is not a number and has no range"),
        ({"kv_cache_dtype": "fp9"}, "nearest: fp8"),
        ({"gpu": "h200_sxx"}, "h200_sxm"),
        ({"gpu": ["h200_sxm", "NVIDIA H200"]}, "are the same"),
        ({"model": "Qwen/Qwen3-32C"}, "Qwen/Qwen3-32B"),
        ({"backend": ["vllm", "vlm"]}, "backend[1]: unknown backend 'vlm'"),
        ({"backend": "vllm", "backend_version": "77.0.0"}, "no constants for vllm 77.0.0"),
        ({"backend_version": 0.19}, 'write it in quotes: "0.19"'),
        ({"router": "robin"}, "nearest: round_robin"),
        ({"quantization": "awqq"}, "quantization: "),
        ({"max_num_seq": 4}, "nearest: max_num_seqs"),
        ({"tp": 2, "tensor_parallel_size": 4}, "tensor_parallel_size stands twice"),
        ({"max_gpus": 0}, "max_gpus: found 0"),
        ({"n_trials": 0}, "n_trials: found 0"),
        ({"n_trials": 1.5}, "n_trials: found 1.5"),
        ({"seed": -1}, "seed: found -1"),
        ({"workload": "trace.jsonl"}, "workload: found 'trace.jsonl'"),
        ({"workload": {"num_prompt": 3}}, "nearest: num_prompts"),
        ({"workload": {"request_rate": float("nan")}}, "workload.request_rate: found nan"),
        ({"workload": {"trace": "nowhere/t.jsonl"}}, "workload.trace: no such folder"),
        ({"workload": {"burstiness": 0.5}}, "workload.burstiness: "),
        ({"objectives": []}, "found 0 objectives"),
        ({"objectives": ["tok_s"]}, "objectives[0]: unknown metric 'tok_s'"),
        ({"objectives": ["ttft", "p99_ttft_ms"]}, "p99_ttft_ms stands twice"),
        ({"objectives": [{"metric": "ttft", "percentile": 98}]}, "objectives[0].percentile"),
        ({"objectives": [{"metric": "output_throughput", "percentile": 99}]}, "no percentile"),
        ({"objectives": [{"metric": "ttft", "direction": "down"}]}, "maximize, minimize"),
        ({"objectives": [{"metrik": "ttft"}]}, "nearest: metric"),
        ({"slos": 500}, "allowed: a mapping such as {ttft: 500, tpot: 50}"),
        ({"slos": {"ttft": -1}}, "slos.ttft: found -1"),
        ({"slos": {"ttft": float("nan")}}, "slos.ttft: found nan"),
        ({"slos": {"tftt": 500}}, "nearest: ttft"),
        ({"slos": {"ttft": {"p42": 500}}}, "slos.ttft.p42: unknown statistic"),
    ],
)
def test_what_is_wrong_is_told(values: dict[str, Any], message: str) -> None:
    assert message in refusal(**values)


def test_all_problems_come_at_once() -> None:
    with pytest.raises(InputErrors) as error:
        parse_space({"modle": "x", "replicas": -1, "seed": "x", "slos": {"ttft": 0}})
    places = {e.where for e in error.value.errors}
    assert places == {
        "space",
        "space: modle",
        "space: replicas",
        "space: seed",
        "space: slos.ttft",
    }
    assert "model is missing" in str(error.value)
    assert "gpu is missing" in str(error.value)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("ttft", Objective("p99_ttft_ms", "minimize")),
        ("median_tpot_ms", Objective("median_tpot_ms", "minimize")),
        ({"metric": "ttft", "percentile": 95}, Objective("p95_ttft_ms", "minimize")),
        ({"metric": "tpot", "percentile": "mean"}, Objective("mean_tpot_ms", "minimize")),
        ({"metric": "goodput"}, Objective("request_goodput", "maximize")),
        ({"metric": "num_gpus", "direction": "min"}, Objective("num_gpus", "minimize")),
        ({"metric": "ttft", "direction": "maximise"}, Objective("p99_ttft_ms", "maximize")),
    ],
)
def test_objectives(written: Any, expected: Objective) -> None:
    assert space(objectives=[written]).objectives == (expected,)
    assert space(objectives=written).objectives == (expected,)


def test_slos_bound_p99_unless_they_say_otherwise() -> None:
    found = space(slos={"ttft": 500, "tpot": {"p50": 20, "p95": 50}, "time-to-first-token": 1})
    assert found.slos[:3] == (
        Slo("ttft", "p99", 500.0),
        Slo("tpot", "p50", 20.0),
        Slo("tpot", "p95", 50.0),
    )
    assert goodput_limits(found.slos[:3]) == {"ttft": 500.0, "tpot": 50.0}


def test_violation_is_the_relative_excess() -> None:
    slo = Slo("ttft", "p99", 200.0)
    assert slo.violation({"p99_ttft_ms": 300.0}) == 0.5
    assert slo.violation({"p99_ttft_ms": 200.0}) == 0.0
    assert slo.violation({"p99_ttft_ms": float("nan")}) == -1.0
    assert slo.violation({}) == float("inf")


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "space.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def file_refusal(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(UserError) as error:
        load_space(written(tmp_path, text))
    return str(error.value)


def test_messages_carry_the_line(tmp_path: Path) -> None:
    text = "model: Qwen/Qwen3-32B\ngpu: h200_sxm\n\nreplicas:\n  - 1\n  - -2\nslos:\n  ttft: x\n"
    lines = file_refusal(tmp_path, text).splitlines()
    assert lines[0] == "space.yaml:6: replicas[1]: found -2"
    assert lines[2] == "space.yaml:8: slos.ttft: found 'x'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found an empty file"),
        ("- 1\n- 2\n", "found list"),
        ("model: [a\ngpu: b\n", "space.yaml:2: not valid YAML"),
        ("model: a\nmodel: b\n", "space.yaml:2: model: key stands twice"),
        (b"\x00\x01\xff\xfe", "not a text file"),
        (b"\x89PNG\r\n\x1a\n", "not a text file"),
        ("model: \x01\n", "not valid YAML"),
        ("model: !!python/name:os.system x\n", "not valid YAML"),
        ("a: &a [1]\nb: &b [*a, *a]\nmodel: *c\n", "not valid YAML"),
        ("#" * (1 << 21), "larger than 1 MiB"),
    ],
)
def test_files_that_are_no_space(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert message in file_refusal(tmp_path, text)


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        load_space(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        load_space(tmp_path)


def test_aliases_cannot_blow_up_memory(tmp_path: Path) -> None:
    bomb = "a0: &a0 [1, 1]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
    )
    assert "more than 50000 values" in file_refusal(tmp_path, bomb)


def test_merge_keys_may_be_overridden(tmp_path: Path) -> None:
    text = "workload: &w {num_prompts: 5}\nmodel: Qwen/Qwen3-32B\ngpu: h200_sxm\n"
    text = text.replace("workload: &w {num_prompts: 5}", "workload: {<<: {seed: 1}, seed: 2}")
    assert load_space(written(tmp_path, text)).workload.seed == 2


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,8,2\n")
    text = "model: Qwen/Qwen3-32B\ngpu: h200_sxm\nworkload: {trace: trace.csv}\n"
    found = load_space(written(tmp_path, text))
    assert found.workload.trace == str(tmp_path / "trace.csv")
    message = file_refusal(tmp_path, text.replace("trace.csv", "trcae.csv"))
    assert "space.yaml:3: workload.trace: no such file" in message
    assert "nearest: trace.csv" in message
