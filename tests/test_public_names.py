"""The names that `import dynosim` offers."""

from __future__ import annotations

import pytest

import dynosim


def test_a_simulation_in_four_lines() -> None:
    load = dynosim.build_workload(
        dynosim.WorkloadSpec(random_input_len=100, random_output_len=20, num_prompts=5)
    )
    engine = dynosim.Deployment(model="Qwen/Qwen3-32B", gpu="H200", tensor_parallel_size=2)
    metrics = dynosim.simulate(engine, load).metrics()
    assert metrics["completed"] == 5


def test_all_names_exist_and_others_do_not() -> None:
    assert all(getattr(dynosim, name) for name in dynosim.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = dynosim.nothing  # type: ignore[attr-defined]
