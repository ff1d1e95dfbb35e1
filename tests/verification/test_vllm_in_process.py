"""vLLM's engine in another process: driven through the real worker, in front of a fake vLLM."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Candidate
from dynosim.sim.deployment import Deployment
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.stepped.step_record import read_step_log
from dynosim.verification.target import EngineFailed, TargetOptions
from dynosim.verification.targets.vllm_in_process import SteppedVllm, VllmInProcess
from stand_ins import candidate_of

FAKE = Path(__file__).resolve().parent / "vllm_stand_in"


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FAKE))


def candidate(**more: Any) -> Candidate:
    fields: dict[str, Any] = {"max_num_seqs": 8, "max_num_batched_tokens": 256, "block_size": 16}
    fields |= {"num_gpu_blocks_override": 100, "async_scheduling": False, **more}
    return candidate_of(Deployment(model="meta-llama/Llama-3.1-8B", gpu="h100", **fields))


def options(folder: Path, **more: Any) -> TargetOptions:
    fields: dict[str, Any] = {"arguments": ("--dtype", "float32"), **more}
    return TargetOptions(folder=folder, command=(sys.executable,), start_timeout_s=60.0, **fields)


def plan(prompts: Sequence[tuple[int, ...]], answers: Sequence[int], warmup: int = 0) -> LoadPlan:
    return LoadPlan(
        prompts=tuple(prompts),
        output_tokens=tuple(answers),
        send_s=None,
        max_concurrency=2,
        warmup=warmup,
    )


def test_a_load_is_measured_on_the_processors_clock(tmp_path: Path) -> None:
    with VllmInProcess(options(tmp_path)).run(candidate()) as running:
        seen = running.measure(plan([(1, 2), (3, 4, 5), (6,)], [2, 3, 2], warmup=1))
    assert [len(request.token_s) for request in seen.requests] == [3, 2]
    assert all(request.error is None for request in seen.requests)
    assert seen.clock == "process-cpu, probed"
    assert seen.facts["kv_cache_tokens"] == 1600
    assert seen.facts["threads"] == 1
    assert seen.facts["vllm"] == "0.fake"


def test_every_step_is_kept_with_what_it_did(tmp_path: Path) -> None:
    with VllmInProcess(options(tmp_path)).run(candidate()) as running:
        assert isinstance(running, SteppedVllm)
        run = running.stepped(plan([(1, 2), (3, 4, 5), (6,)], [2, 3, 1]))
    batches = [sorted((w.request, w.tokens, w.context_tokens) for w in s.work) for s in run.steps]
    # The third enters as soon as the first is answered, with two slots.
    assert batches[0] == [(0, 2, 0), (1, 3, 0)]
    assert batches[1] == [(0, 1, 2), (1, 1, 3)]
    assert batches[2] == [(1, 1, 4), (2, 1, 0)]
    facts, steps = read_step_log(tmp_path / "steps-1.jsonl.gz")
    assert steps == run.steps
    assert facts["warmup_steps"] == 0


def test_an_engine_that_does_not_start_says_why(tmp_path: Path) -> None:
    target = VllmInProcess(options(tmp_path, model="no-such-model"))
    with pytest.raises(EngineFailed, match="no such model here") as raised, target.run(candidate()):
        pass
    assert "loading no-such-model float32" in str(raised.value)


def test_a_python_without_vllm_says_nothing_of_the_candidate(tmp_path: Path) -> None:
    bare = replace(options(tmp_path), command=(sys.executable, "-I", "-S"))
    target = VllmInProcess(bare)
    with pytest.raises(UserError, match="No module named") as raised, target.run(candidate()):
        pass
    assert not isinstance(raised.value, EngineFailed)


def test_an_engine_that_ends_under_load_says_so(tmp_path: Path) -> None:
    with (
        pytest.raises(EngineFailed, match="process ended") as raised,
        VllmInProcess(options(tmp_path)).run(candidate()) as running,
    ):
        running.measure(plan([(13, 2)], [2]))
    assert "unlucky" in str(raised.value)


def test_nothing_is_left_running(tmp_path: Path) -> None:
    with VllmInProcess(options(tmp_path)).run(candidate()) as running:
        assert isinstance(running, SteppedVllm)
        process = running.engine._process
        assert process.poll() is None
    assert process.poll() is not None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tensor_parallel_size", 2),
        ("replicas", 2),
        ("async_scheduling", True),
        ("backend", "sglang"),
    ],
)
def test_what_it_cannot_run_is_refused(tmp_path: Path, field: str, value: Any) -> None:
    target = VllmInProcess(options(tmp_path))
    with pytest.raises(UserError) as raised, target.run(candidate(**{field: value})):
        pass
    assert raised.value.where == field
    assert not list(tmp_path.iterdir())


def test_a_model_is_the_folder_of_its_configuration(tmp_path: Path) -> None:
    from dynosim.verification.targets.vllm_in_process import words

    given = candidate()
    assert words(given, options(tmp_path))[:2] == ["--model", "meta-llama/Llama-3.1-8B"]
    assert words(given, options(tmp_path))[-2:] == ["--dtype", "float32"]
