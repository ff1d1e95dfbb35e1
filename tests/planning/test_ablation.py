"""An ablation adds up, and published claims come out near where they were published."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.planning.ablation import ablate
from dynosim.planning.goal import Worth, goal_of, shapes
from dynosim.planning.layer import FIELDS, changes, with_changes
from dynosim.search.slo import Slo
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

PLAIN = Deployment(model="m", gpu="h100")
TUNED = Deployment(model="m", gpu="h200", quantization="fp8", max_num_seqs=512, api_server_count=4)


def worth(deployment: Deployment) -> Worth:
    """A GPU doubles, FP8 gives half more; more sequences only help where there is room (H200)."""
    value = 100.0
    value *= 2 if deployment.gpu == "h200" else 1
    value *= 1.5 if deployment.quantization else 1
    value *= 1.2 if deployment.max_num_seqs and deployment.gpu == "h200" else 1
    return Worth(value=value, deployment=deployment)


def test_every_field_lies_in_one_layer() -> None:
    named = [name for fields in FIELDS.values() for name in fields]
    assert sorted(named) == sorted(Deployment.__dataclass_fields__)


def test_changes_are_told_by_layer() -> None:
    assert changes(PLAIN, TUNED) == {
        "infrastructure": {"gpu": "h200"},
        "model and precision": {"quantization": "fp8"},
        "serving": {"max_num_seqs": 512},
        "client and edge": {"api_server_count": 4},
    }
    assert with_changes(PLAIN, *changes(PLAIN, TUNED).values()) == TUNED


def test_steps_lead_from_the_baseline_to_the_tuned_deployment() -> None:
    found = ablate(PLAIN, TUNED, worth)
    assert [s.together.value for s in found.steps] == pytest.approx([200, 300, 360, 360])
    assert [s.alone.value for s in found.steps] == pytest.approx([200, 150, 100, 100])
    assert found.tuned.deployment == TUNED
    assert found.factor == pytest.approx(3.6)


def test_interaction_is_what_single_factors_do_not_explain() -> None:
    # 2 x 1.5 x 1 x 1 alone, 3.6 together: room on the H200 is worth 1.2.
    assert ablate(PLAIN, TUNED, worth).interaction == pytest.approx(1.2)


def test_the_narrowest_layer_is_the_one_that_helps_most_from_here() -> None:
    found = ablate(PLAIN, TUNED, worth)
    assert found.narrowest_first == "infrastructure"
    assert [s.narrowest for s in found.steps] == ["model and precision", "serving", "", ""]


def test_the_order_may_be_chosen_and_ends_at_the_same_place() -> None:
    found = ablate(PLAIN, TUNED, worth, ["serving", "model and precision"])
    assert [s.layer for s in found.steps][:2] == ["serving", "model and precision"]
    assert found.factor == pytest.approx(3.6)
    with pytest.raises(UserError, match="unknown layer 'kernels'"):
        ablate(PLAIN, TUNED, worth, ["kernels"])


def test_equal_deployments_have_nothing_to_explain() -> None:
    with pytest.raises(UserError, match="equal"):
        ablate(PLAIN, PLAIN, worth)


def test_a_layer_that_cannot_run_alone_has_a_reason_and_no_interaction() -> None:
    def only_with_the_gpu(deployment: Deployment) -> Worth:
        if deployment.quantization and deployment.gpu != "h200":
            return Worth(value=0.0, deployment=deployment, reason="no FP8 here")
        return worth(deployment)

    found = ablate(PLAIN, TUNED, only_with_the_gpu)
    assert found.steps[1].alone.reason == "no FP8 here"
    assert math.isnan(found.interaction)
    assert found.factor == pytest.approx(3.6)


def test_parallelism_is_tried_in_powers_of_two_within_a_node() -> None:
    assert [d.tensor_parallel_size for d in shapes(PLAIN, 100)] == [1, 2, 4, 8]
    assert [d.tensor_parallel_size for d in shapes(PLAIN, 3)] == [1, 2]


def test_what_cannot_run_is_worth_nothing_and_says_why() -> None:
    goal = goal_of("tok-s-per-gpu", WorkloadSpec(num_prompts=4), ())
    found = goal(Deployment(model="meta-llama/Llama-3.1-70B-Instruct", gpu="l40s"))
    assert found.value == 0
    assert "no memory for the KV cache" in found.reason


def test_users_per_gpu_are_users_over_gpus() -> None:
    spec = WorkloadSpec(random_input_len=256, random_output_len=32, num_prompts=64)
    slos = (Slo("tpot", "p95", 12.0),)
    engine = Deployment(model="Qwen/Qwen3-8B", gpu="h100", tensor_parallel_size=2, max_num_seqs=16)
    users = goal_of("users", spec, slos)(engine).value
    assert goal_of("users-per-gpu", spec, slos)(engine).value == users / 2


@pytest.mark.parametrize(
    ("shape", "published"), [("128_128", 5.7), ("128_2048", 6.0), ("128_4096", 6.7)]
)
def test_h200_fp8_over_a100_fp16_is_near_what_was_published(
    shape: str, published: float, checkout: Path
) -> None:
    from dynosim.pair import read_pair_file

    pair = read_pair_file(checkout / f"examples/claims/h200_fp8_vs_a100_fp16_{shape}.yaml")
    assert pair.about["published"] == published
    goal = goal_of("tok-s-per-gpu", pair.workload, (), best_parallelism=8)
    found = ablate(pair.baseline, pair.tuned, goal)
    assert found.factor == pytest.approx(published, rel=0.15)
