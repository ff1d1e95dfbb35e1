"""Every example of one deployment runs; Little's law holds on it, as ``conftest`` asserts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynosim.question import read_question
from dynosim.sim.bottleneck.report import bottleneck
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = [
    *sorted(
        path
        for folder in ("bottleneck", "clients", "kv_tiers", "disaggregation", "routing")
        for path in (EXAMPLES / folder).glob("*.yaml")
        if path.stem != "space"
    ),
    EXAMPLES / "autoscaling" / "failures.yaml",
    EXAMPLES / "autoscaling" / "spike.yaml",
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_what_bound_an_example_is_told_for_all_of_its_time(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    question = read_question(file.name, {}, ())
    workload = build_workload(question.workload)
    found = bottleneck(simulate(question.deployment, workload, seed=question.seed))
    assert found is not None
    assert sum(found.bound_by.values()) == pytest.approx(1.0, abs=1e-6)
    assert sum(found.steps.values()) == pytest.approx(1.0, abs=1e-6)
