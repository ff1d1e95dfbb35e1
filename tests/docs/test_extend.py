"""The router that ``docs/extend.md`` writes works when it is dropped in."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from blocks import blocks
from dynosim import Deployment, WorkloadSpec, build_workload, simulate


def test_the_page_s_router_serves_requests(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = blocks(checkout / "docs" / "extend.md", checkout)
    source = next(block.text for block in found if block.language == "python")
    module = ModuleType("dynosim.sim.cluster.routers.most_free")
    exec(source, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    load = build_workload(WorkloadSpec(random_input_len=200, random_output_len=20, num_prompts=12))
    run = simulate(
        Deployment(model="Qwen/Qwen3-0.6B", gpu="h100", replicas=3, router="most_free"), load
    )
    assert run.metrics()["completed"] == 12
