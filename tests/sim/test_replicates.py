"""Seeds: what a figure owes to the draw of its load."""

from __future__ import annotations

import math

import pytest

from dynosim.sim.deployment import Deployment
from dynosim.sim.replicates import estimates, replicate
from dynosim.sim.workload.spec import WorkloadSpec

SPEC = WorkloadSpec(
    random_input_len=300,
    random_output_len=40,
    random_range_ratio=0.5,
    request_rate=20.0,
    num_prompts=100,
)


def served(max_num_seqs: int) -> Deployment:
    return Deployment(model="Qwen/Qwen3-8B", gpu="h100", max_num_seqs=max_num_seqs)


def test_the_standard_error_is_that_of_a_mean() -> None:
    runs = [{"a": 1.0, "b": 5.0}, {"a": 2.0, "b": 5.0}, {"a": 6.0, "b": 5.0}]
    found = estimates(runs)
    # Variance (4 + 1 + 9) / 2 = 7 over three runs.
    assert found["a"].mean == pytest.approx(3.0)
    assert found["a"].standard_error == pytest.approx(math.sqrt(7 / 3))
    assert found["b"].standard_error == 0.0
    assert math.isnan(estimates(runs[:1])["a"].standard_error)


def test_seeds_differ_and_are_the_same_for_all_deployments() -> None:
    narrow, wide = (replicate(served(n), SPEC, seeds=(3, 4)) for n in (4, 64))
    assert narrow[0]["total_input_tokens"] == wide[0]["total_input_tokens"]
    assert narrow[0]["total_input_tokens"] != narrow[1]["total_input_tokens"]
    (again,) = replicate(served(4), SPEC, seeds=(3,))
    assert again == pytest.approx(narrow[0], nan_ok=True)
