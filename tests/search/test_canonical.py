"""Candidates that are the same to simulate, and outcomes kept from one search to the next."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from analytic_evaluator import analytic

from dynosim.hardware_models.resolve import resolve_engine
from dynosim.search import parse_space, search
from dynosim.search.canonical import canonical
from dynosim.search.evaluator import simulate_candidate
from dynosim.search.outcome import Outcome, Task
from dynosim.search.outcome_cache import OutcomeCache
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.spec import WorkloadSpec

WORKLOAD = build_workload(
    WorkloadSpec(num_prompts=60, request_rate=20.0, random_input_len=300, random_input_cv=1.0)
)
DENSE = Deployment(model="Qwen/Qwen3-8B", gpu="h100_sxm")
MOE = Deployment(model="Qwen/Qwen3-30B-A3B", gpu="h100_sxm", tensor_parallel_size=2)


def filled(deployment: Deployment) -> dict[str, Any]:
    args = resolve_engine(deployment).args
    names = ("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "max_model_len")
    return {name: getattr(args, name) for name in names}


@pytest.mark.parametrize(
    ("one", "changes"),
    [
        (DENSE, {"model": "qwen3 8b", "gpu": "NVIDIA H100"}),
        (DENSE, filled(DENSE)),
        (DENSE, {"backend_version": resolve_engine(DENSE).args.backend_version}),
        (DENSE, {"scheduling_policy": "fcfs"}),
        (DENSE, {"expert_distribution": "balanced"}),
        (DENSE, {"all2all_backend": "allgather_reducescatter"}),
        (DENSE, {"router": "least_outstanding"}),
        (DENSE, {"router": "random"}),
        (DENSE, {"router": "kv_aware", "router_temperature": 0.5, "router_replicas": 2}),
        (replace(DENSE, backend="sglang"), {"load_balance_method": "round_robin"}),
        (replace(DENSE, backend="trtllm"), filled(replace(DENSE, backend="trtllm"))),
        (DENSE, {"num_speculative_tokens": 0, "speculative_method": "ngram"}),
        (MOE, {"all2all_backend": "allgather_reducescatter"}),
    ],
)
def test_the_same_canonical_form_gives_the_same_outcome(
    one: Deployment, changes: dict[str, Any]
) -> None:
    other = replace(one, **changes)
    assert one != other
    assert canonical(one, WORKLOAD) == canonical(other, WORKLOAD)
    task = Task(workload=WORKLOAD, seed=3)
    assert repr(simulate_candidate(one, task)) == repr(simulate_candidate(other, task))


@pytest.mark.parametrize(
    ("one", "changes"),
    [
        (DENSE, {"max_num_seqs": 8}),
        (DENSE, {"backend": "sglang"}),
        (MOE, {"expert_distribution": "balanced"}),
        (MOE, {"enable_expert_parallel": True}),
        (replace(MOE, data_parallel_size=2), {"load_balance_method": "round_robin"}),
        (replace(DENSE, replicas=2), {"router": "random"}),
        (DENSE, {"router_max_outstanding": 4}),
    ],
)
def test_what_has_an_effect_is_kept(one: Deployment, changes: dict[str, Any]) -> None:
    assert canonical(one, WORKLOAD) != canonical(replace(one, **changes), WORKLOAD)


def test_a_second_pool_takes_over_what_the_first_leaves_open() -> None:
    pools = replace(DENSE, prefill_replicas=1, prefill_gpu="h200_sxm")
    assert canonical(pools, WORKLOAD) == pools
    one = replace(DENSE, prefill_max_num_seqs=8)
    assert canonical(one, WORKLOAD) == canonical(DENSE, WORKLOAD)


def test_room_for_the_longest_request_is_not_a_limit() -> None:
    long = replace(WORKLOAD, input_tokens=WORKLOAD.input_tokens + 60_000)
    declared = resolve_engine(DENSE).args.max_model_len
    assert canonical(DENSE, long) != canonical(replace(DENSE, max_model_len=declared), long)


def test_equivalent_candidates_are_simulated_once() -> None:
    space = parse_space(
        {
            "model": "Qwen/Qwen3-8B",
            "gpu": "h100_sxm",
            "router": ["round_robin", "random"],
            "replicas": [1, 2],
            "max_num_seqs": [None, filled(DENSE)["max_num_seqs"]],
            "workload": {"num_prompts": 20},
        }
    )
    assert search(space, workers=1).simulated_here == 3


@pytest.fixture
def space_values() -> dict[str, Any]:
    return {
        "model": "Qwen/Qwen3-32B",
        "gpu": "h200_sxm",
        "backend": ["vllm", "sglang"],
        "max_num_seqs": [16, 64],
        "workload": {"num_prompts": 20, "request_rate": 2.0},
    }


def written(space: dict[str, Any], folder: Path, **options: Any) -> tuple[int, dict[str, bytes]]:
    result = search(space, workers=1, output_dir=folder, **options)
    names = ("frontier.csv", "trials.csv", "manifest.json")
    return result.simulated_here, {name: (folder / name).read_bytes() for name in names}


def test_a_warm_cache_saves_simulations_and_changes_no_byte(
    space_values: dict[str, Any], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    without = written(space_values, tmp_path / "a")
    assert written(space_values, tmp_path / "b", cache_dir=cache) == without
    assert written(space_values, tmp_path / "c", cache_dir=cache) == (0, without[1])
    more = {**space_values, "max_num_seqs": [16, 32, 64]}
    assert written(more, tmp_path / "d", cache_dir=cache)[0] == 2
    other_seed = {**space_values, "seed": 1}
    assert written(other_seed, tmp_path / "e", cache_dir=cache)[0] == 4
    other_load = {**space_values, "workload": {"num_prompts": 21, "request_rate": 2.0}}
    assert written(other_load, tmp_path / "f", cache_dir=cache)[0] == 4


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff\x00", b'{"sha256": "0", "outcome": "{}"}'])
def test_a_damaged_entry_is_computed_again_with_a_warning(
    space_values: dict[str, Any], tmp_path: Path, damage: bytes
) -> None:
    cache = tmp_path / "cache"
    right = written(space_values, tmp_path / "a", cache_dir=cache)[1]
    entry = sorted(cache.rglob("*.json"))[0]
    entry.write_bytes(damage)
    with pytest.warns(UserWarning, match="is damaged; computed again"):
        assert written(space_values, tmp_path / "b", cache_dir=cache) == (1, right)
    assert written(space_values, tmp_path / "c", cache_dir=cache) == (0, right)


def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    task = Task(workload=WORKLOAD)
    cache = OutcomeCache(tmp_path, analytic, task)
    cache.put(DENSE, Outcome(reason="error", detail="out of memory"))
    assert cache.get(DENSE) is None
    cache.put(DENSE, Outcome(metrics={"duration": float("inf")}, warnings=("so",)))
    assert cache.get(DENSE) == Outcome(metrics={"duration": float("inf")}, warnings=("so",))
    assert OutcomeCache(tmp_path, simulate_candidate, task).get(DENSE) is None


def test_a_full_disk_costs_the_cache_and_not_the_search(
    space_values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    right = written(space_values, tmp_path / "a")
    task = Task(workload=WORKLOAD)
    cache = OutcomeCache(tmp_path / "cache", analytic, task)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(UserWarning, match="No space left on device; no more is kept"):
        cache.put(DENSE, Outcome(metrics={"duration": 1.0}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(DENSE, Outcome(metrics={"duration": 1.0}))
    assert right[0] == 4
