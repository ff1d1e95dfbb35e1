"""The names that `import dynosim` and the packages of its rooms offer."""

from __future__ import annotations

from importlib import import_module

import pytest

import dynosim


def test_a_simulation_in_four_lines() -> None:
    load = dynosim.build_workload(
        dynosim.WorkloadSpec(random_input_len=100, random_output_len=20, num_prompts=5)
    )
    engine = dynosim.Deployment(model="Qwen/Qwen3-32B", gpu="H200", tensor_parallel_size=2)
    metrics = dynosim.simulate(engine, load).metrics()
    assert metrics["completed"] == 5


@pytest.mark.parametrize("name", ["dynosim", "dynosim.search", "dynosim.planning"])
def test_all_names_exist_and_others_do_not(name: str) -> None:
    package = import_module(name)
    assert all(getattr(package, public) for public in package.__all__)
    with pytest.raises(AttributeError, match=f"'{name}' has no attribute 'nothing'"):
        _ = package.nothing
