"""Plans, ablations and capacities as tables and figures: the rows are the objects' own figures."""

from __future__ import annotations

import pytest

import dynosim.planning as planning
from dynosim.planning import Demand, Prices, ablate, find_capacity, plan_fleets
from dynosim.planning.goal import Worth
from dynosim.search.slo import Slo
from dynosim.search.space import parse_space
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

SPACE = {
    "model": "Qwen/Qwen3-8B",
    "gpu": ["t4", "l40s", "h100_sxm"],
    "backend_version": "0.19.0",
    "max_model_len": 4096,
    "workload": {"isl": 1000, "osl": 100, "num_prompts": 100},
    "slos": {"ttft": {"p95": 1000}, "tpot": {"p95": 40}},
}


def test_a_plan_is_a_row_an_option_the_cheapest_first() -> None:
    plan = plan_fleets(parse_space(SPACE), Demand(requests_s=(10.0, 20.0)), prices=Prices())
    frame = plan.to_frame()
    assert len(frame) == 3
    served = frame[frame.reason == ""]
    assert served.usd_month.is_monotonic_increasing
    assert frame.gpu.iloc[-1] == "t4"
    assert frame.reason.iloc[-1]
    cheapest, fleet = served.iloc[0], plan.feasible[0].fleet
    assert fleet is not None
    assert (cheapest.gpus, cheapest.usd_month) == (fleet.gpus, fleet.rent_usd_month)
    assert cheapest.gpus_demand_less <= cheapest.gpus <= cheapest.gpus_demand_more
    assert {"p95_ttft_ms", "p95_tpot_ms"} <= set(frame.columns)
    assert len(frame[frame.on_frontier]) == len(plan.frontier)
    assert plan.plot("a title").axes[0].get_title() == "a title"


def test_an_ablation_is_a_row_a_layer_below_the_baseline() -> None:
    def worth(deployment: Deployment) -> Worth:
        if deployment.quantization and deployment.gpu != "h200":
            return Worth(value=0.0, deployment=deployment, reason="does not fit")
        value = (
            10.0 * (2 if deployment.gpu == "h200" else 1) * (3 if deployment.quantization else 1)
        )
        return Worth(value=value, deployment=deployment)

    plain = Deployment(model="m", gpu="h100")
    found = ablate(plain, Deployment(model="m", gpu="h200", quantization="fp8"), worth)
    frame = found.to_frame()
    assert list(frame.layer) == ["baseline", "infrastructure", "model and precision"]
    assert list(frame.together) == [10.0, 20.0, 60.0]
    assert list(frame.factor)[1:] == [2.0, 3.0]
    assert frame.alone.isna().tolist() == [True, False, True]  # FP8 alone cannot run
    assert list(frame.changed)[1:] == ["gpu: h200", "quantization: fp8"]
    assert "tok/s/GPU" in found.plot("tok-s-per-gpu").axes[0].get_ylabel()


def test_a_capacity_is_a_row_a_load() -> None:
    engine = Deployment(model="Qwen/Qwen3-8B", gpu="h100", backend_version="0.19.0")
    load = WorkloadSpec(random_input_len=256, random_output_len=16)
    found = find_capacity(engine, load, (Slo("tpot", "p95", 10.0),), seeds=1)
    frame = found.to_frame()
    assert list(frame.load) == [seen.load.size for seen in found.sweep]
    assert (frame.p95_tpot_ms[frame.load <= found.value] <= 10.0).all()
    assert len(found.plot().axes) == 2


def test_the_public_names_are_there_and_others_are_not() -> None:
    assert all(getattr(planning, name) for name in planning.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = planning.nothing  # type: ignore[attr-defined]
