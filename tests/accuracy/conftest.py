"""Cases small enough to simulate in a test, and outcomes made without any simulation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dynosim.accuracy.case import Case
from dynosim.accuracy.run import Outcome
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec


@pytest.fixture
def case() -> Callable[..., Case]:
    """Makes a case of four requests; keywords replace its fields."""

    def make(row: str = "made_up.csv:2", gpu: str = "h100_sxm", **fields: object) -> Case:
        deployment = Deployment(model="Qwen/Qwen3-8B", gpu=gpu, backend_version="0.19.0")
        load = WorkloadSpec(
            random_input_len=128, random_output_len=8, max_concurrency=2, num_prompts=4
        )
        return Case(
            **{
                "set": "made_up",
                "group": f"Qwen3-8B on {gpu}",
                "row": row,
                "deployment": deployment,
                "workload": load,
                "measured": {"mean_ttft_ms": 20.0, "mean_tpot_ms": 8.0},
                **fields,
            }
        )

    return make


@pytest.fixture
def outcome(case: Callable[..., Case]) -> Callable[..., Outcome]:
    """Makes an outcome with these predictions and this mean number of requests in flight."""

    def make(in_flight: float = 2.0, refusal: str | None = None, **predicted: float) -> Outcome:
        law = {"request_throughput": in_flight, "mean_e2el_ms": 1000.0}
        fields = {
            k: predicted.pop(k) for k in ("row", "gpu", "group", "measured") if k in predicted
        }
        figures = {} if refusal else law | predicted
        return Outcome(case=case(**fields), predicted=figures, basis="measured", refusal=refusal)

    return make
