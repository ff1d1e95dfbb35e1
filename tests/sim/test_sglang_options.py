"""SGLang's options from a deployment to its scheduler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import Simulation, simulate
from workloads import workload


def run(backend: str = "sglang", outputs: int = 60, **options: Any) -> Simulation:
    deployment = Deployment(model="Qwen/Qwen3-8B", gpu="H100", backend=backend, **options)
    rng = np.random.default_rng(0)
    arrivals = np.cumsum(rng.exponential(0.05, 60))
    ids = [[7, 8, 9] if i % 2 else [1000 + 3 * i + j for j in range(3)] for i in range(60)]
    load = workload(arrivals.tolist(), [1600] * 60, [outputs] * 60, ids, block=512)
    return simulate(deployment, load)


def test_the_backend_brings_its_own_scheduler_and_policies() -> None:
    assert any(log.steps.is_pause.any() for log in run().result.replicas)
    assert not any(log.steps.is_pause.any() for log in run("vllm").result.replicas)
    run(scheduling_policy="dfs-weight")
    with pytest.raises(UserError, match="allowed: dfs_weight, fcfs, lof, lpm"):
        run(scheduling_policy="priority")


def test_mixed_chunks_leave_no_pauses_and_shorten_the_tail_of_itl() -> None:
    mixed = run(enable_mixed_chunk=True)
    assert not any(log.steps.is_pause.any() for log in mixed.result.replicas)
    assert mixed.metrics()["p99_itl_ms"] < run().metrics()["p99_itl_ms"]


def test_conservativeness_decides_how_many_run_at_once() -> None:
    # 7,680 tokens hold four prompts of 1,600, but of 2,000 with their outputs only three.
    small = {"outputs": 400, "num_gpu_blocks_override": 480, "max_model_len": 2000}
    small |= {"block_size": 16, "enable_prefix_caching": False}
    careful = run(schedule_conservativeness=1.4, **small).result.replicas[0].steps
    daring = run(schedule_conservativeness=0.0, **small).result.replicas[0].steps
    assert (careful.running.max(), daring.running.max()) == (3, 4)


def test_other_backends_have_no_such_options() -> None:
    with pytest.raises(UserError, match=r"enable_mixed_chunk: vllm has no such option"):
        run("vllm", enable_mixed_chunk=True)
    with pytest.raises(UserError, match=r"schedule_conservativeness: vllm has no such option"):
        run("vllm", schedule_conservativeness=0.5)
