"""How likely a point of the frontier is truly non-dominated, beside results worked out by hand."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from dynosim.accuracy.error_classes import FIELDS, ErrorClass
from dynosim.accuracy.intervals import ErrorModel
from dynosim.accuracy.shared_errors import Z_HIGH, SharedErrors
from dynosim.search.chance import chances
from dynosim.search.frontier import frontier
from dynosim.search.likeness import EXACT, error_of
from dynosim.search.objective import Objective
from dynosim.search.trial import Trial
from dynosim.sim.deployment import Deployment

SPREAD = 0.1
"""Standard deviation of every error's logarithm here."""

TPOT = Objective("mean_tpot_ms", "minimize")
TTFT = Objective("p99_ttft_ms", "minimize")
GPUS = Objective("num_gpus", "minimize")
PER_GPU = Objective("output_tok_s_per_gpu", "maximize")
ENERGY = Objective("joules_per_output_token", "minimize")


def phi(z: float) -> float:
    return NormalDist().cdf(z)


def trial(number: int, gpu: str = "h100_sxm", **other: Any) -> Trial:
    """A trial of one stack; its metrics are those named."""
    pools = {k: other.pop(k) for k in ("prefill_replicas",) if k in other}
    deployment = Deployment(model="Qwen/Qwen3-32B", gpu=gpu, replicas=number + 1, **pools)
    metrics = {"request_throughput": 1.0, "mean_e2el_ms": 1000.0, **other}
    return Trial(number=number, deployment=deployment, metrics=metrics, timing="measured")


def model(**medians: float) -> ErrorModel:
    key = tuple("*" for _ in FIELDS)
    room = Z_HIGH * SPREAD
    return ErrorModel(
        classes={
            (quantity, key): ErrorClass(
                quantity=quantity,
                key=key,
                points=99,
                groups=9,
                low=median - room,
                median=median,
                high=median + room,
            )
            for quantity, median in {
                "tpot": 0.0,
                "ttft": 0.0,
                "output_throughput": 0.0,
                **medians,
            }.items()
        },
        widen={},
        coverage={},
    )


def shared(share: float, together: float = 0.0) -> SharedErrors:
    """Both parts have the same correlation between any two metrics."""
    names = ("output_throughput", "tpot", "ttft")
    whole = np.full((3, 3), together) + (1.0 - together) * np.eye(3)
    groups = np.full((3, 3), 9)
    return SharedErrors(
        quantities=names, shared=share * whole, own=(1.0 - share) * whole, groups=groups
    )


def found(trials: list[Trial], *objectives: Objective, **settings: Any) -> dict[int, float]:
    settings = {"is_open": True, "seed": 0, "model": model(), "shared": shared(0.5), **settings}
    front = frontier(trials, objectives)
    every = chances(front, trials, objectives, **settings)
    return {t.number: every[t.number].alone for t in front if t.number in every}


def test_of_one_stack_only_what_each_has_of_its_own_can_turn_the_order() -> None:
    trials = [trial(0, mean_tpot_ms=10.0), trial(1, mean_tpot_ms=11.0)]
    # Half of the variance is shared and cancels: the difference has 2 × (1 - 0.5) × 0.1².
    expected = phi(math.log(1.1) / 0.1)
    assert found(trials, TPOT) == {0: pytest.approx(expected, abs=0.025)}


def test_two_stacks_share_nothing() -> None:
    trials = [trial(0, mean_tpot_ms=10.0), trial(1, gpu="h200_sxm", mean_tpot_ms=11.0)]
    expected = phi(math.log(1.1) / (0.1 * math.sqrt(2.0)))
    assert found(trials, TPOT) == {0: pytest.approx(expected, abs=0.025)}


def test_an_error_that_is_shared_as_a_whole_turns_nothing() -> None:
    trials = [trial(0, mean_tpot_ms=10.0), trial(1, mean_tpot_ms=10.001)]
    assert found(trials, TPOT, shared=shared(1.0)) == {0: 1.0}


def test_a_bias_of_all_predictions_alike_turns_nothing() -> None:
    trials = [trial(0, mean_tpot_ms=10.0), trial(1, mean_tpot_ms=11.0)]
    assert found(trials, TPOT, model=model(tpot=0.4)) == found(trials, TPOT)


def test_of_independent_objectives_both_must_turn() -> None:
    trials = [
        trial(0, mean_tpot_ms=10.0, p99_ttft_ms=100.0),
        trial(1, mean_tpot_ms=11.0, p99_ttft_ms=90.0),
    ]
    # Trial 1 dominates where it is also faster per token; it leads in TTFT already.
    ahead, behind = phi(-math.log(100 / 90) / 0.1), phi(-math.log(1.1) / 0.1)
    assert found(trials, TPOT, TTFT) == {
        0: pytest.approx(1.0 - (1.0 - ahead) * behind, abs=0.025),
        1: pytest.approx(1.0 - ahead * (1.0 - behind), abs=0.025),
    }


def test_objectives_that_err_as_one_cannot_turn_by_halves() -> None:
    trials = [
        trial(0, mean_tpot_ms=10.0, p99_ttft_ms=100.0),
        trial(1, mean_tpot_ms=11.0, p99_ttft_ms=90.0),
    ]
    # One difference d ~ N(0, 0.1²) moves both: trial 1 dominates where d < -ln 1.1, 0 where
    # d > ln(100/90).
    together = found(trials, TPOT, TTFT, shared=shared(0.5, together=1.0))
    assert together == {
        0: pytest.approx(1.0 - phi(-math.log(1.1) / 0.1), abs=0.025),
        1: pytest.approx(1.0 - phi(-math.log(100 / 90) / 0.1), abs=0.025),
    }


def test_who_has_the_fewest_gpus_is_sure_of_it() -> None:
    trials = [
        trial(0, num_gpus=1.0, p99_ttft_ms=100.0),
        trial(1, num_gpus=2.0, p99_ttft_ms=90.0),
        trial(2, num_gpus=4.0, p99_ttft_ms=89.0),
    ]
    sure = found(trials, GPUS, TTFT)
    assert sure[0] == 1.0
    assert sure[1] == pytest.approx(phi(math.log(100 / 90) / 0.1), abs=0.025)
    assert 0.3 < sure[2] < 0.6


def test_in_an_open_loop_throughput_is_the_loads_and_certain() -> None:
    trials = [
        trial(0, output_tok_s_per_gpu=100.0, p99_ttft_ms=100.0),
        trial(1, output_tok_s_per_gpu=90.0, p99_ttft_ms=90.0),
    ]
    assert found(trials, PER_GPU, TTFT, is_open=True)[0] == 1.0
    closed = found(trials, PER_GPU, TTFT, is_open=False)[0]
    turned = phi(-math.log(100 / 90) / 0.1)
    assert closed == pytest.approx(1.0 - turned * (1.0 - turned), abs=0.025)


def test_a_dominated_trial_within_the_errors_is_a_rival_and_a_hopeless_one_is_not() -> None:
    close = [trial(0, mean_tpot_ms=10.0), trial(1, mean_tpot_ms=10.1)]
    alone = found(close[:1], TPOT)
    assert alone == {0: 1.0}
    both = found(close, TPOT)
    assert both[0] < 0.6
    assert found([*close, trial(2, mean_tpot_ms=30.0)], TPOT) == both


def test_a_rival_has_a_chance_of_its_own() -> None:
    trials = [trial(0, mean_tpot_ms=10.0), trial(1, mean_tpot_ms=10.5), trial(2, mean_tpot_ms=90.0)]
    every = chances(
        frontier(trials, [TPOT]), trials, [TPOT],
        is_open=True, seed=0, model=model(), shared=shared(0.5),
    )  # fmt: skip
    assert every.keys() == {0, 1}
    assert sum(chance.alone for chance in every.values()) == 1.0, "one of them is the fastest"
    assert all(chance.or_near == chance.alone for chance in every.values()), "none is near another"


def test_near_twins_share_a_chance_and_have_it_together() -> None:
    # Two within 1 % of each other, a third 5 % behind, of whose error they share nothing.
    trials = [
        trial(0, mean_tpot_ms=10.0),
        trial(1, mean_tpot_ms=10.05),
        trial(2, gpu="h200_sxm", mean_tpot_ms=10.5),
    ]
    every = chances(
        frontier(trials, [TPOT]), trials, [TPOT],
        is_open=True, seed=0, model=model(), shared=shared(0.5),
    )  # fmt: skip
    assert every[0].or_near == every[1].or_near == every[0].alone + every[1].alone
    assert every[0].or_near == pytest.approx(1.0 - every[2].alone)
    assert every[2].or_near == every[2].alone


def test_the_very_same_figures_are_no_rival() -> None:
    trials = [trial(0, mean_tpot_ms=10.0), trial(1, mean_tpot_ms=10.0)]
    assert found(trials, TPOT) == {0: 1.0}


def test_infeasible_trials_are_no_rivals() -> None:
    missed = Trial(
        number=1,
        deployment=Deployment(model="Qwen/Qwen3-32B", gpu="h100_sxm"),
        metrics={"mean_tpot_ms": 10.1},
        reason="slo",
    )
    assert found([trial(0, mean_tpot_ms=10.0), missed], TPOT) == {0: 1.0}


def test_pools_have_no_chance_of_their_own_but_are_rivals() -> None:
    pools = trial(1, prefill_replicas=1, mean_tpot_ms=9.0, p99_ttft_ms=200.0)
    one = trial(0, mean_tpot_ms=10.0, p99_ttft_ms=190.0)
    sure = found([one, pools], TPOT, TTFT)
    assert sure.keys() == {0}
    assert sure[0] < 0.95


@pytest.mark.parametrize("objective", [ENERGY, Objective("slo_attainment", "maximize")])
def test_what_nobody_has_measured_gives_no_chance(objective: Objective) -> None:
    trials = [trial(0, mean_tpot_ms=10.0, **{objective.metric: 1.0})]
    assert found(trials, TPOT, objective) == {}
    assert found(trials, TPOT, model=ErrorModel(classes={}, widen={}, coverage={})) == {}


def test_the_seed_decides_the_draws() -> None:
    trials = [trial(0, mean_tpot_ms=10.0), trial(1, mean_tpot_ms=10.5)]
    assert found(trials, TPOT, seed=3) == found(trials, TPOT, seed=3)
    assert found(trials, TPOT, seed=3) != found(trials, TPOT, seed=4)


def test_which_errors_count_for_which_objective() -> None:
    closed = {"output_tok_s_per_gpu": ("output_throughput", 1.0)}
    closed |= {"usd_per_million_output_tokens": ("output_throughput", -1.0)}
    closed |= {"output_tok_s_per_user": ("tpot", -1.0), "p99_itl_ms": ("tpot", 1.0)}
    closed |= {"p95_ttft_ms": ("ttft", 1.0), "mean_e2el_ms": ("e2el", 1.0)}
    closed |= {"num_gpus": (EXACT, 0.0), "usd_per_hour": (EXACT, 0.0)}
    assert {name: error_of(name, is_open=False) for name in closed} == closed
    assert error_of("output_tok_s_per_gpu", is_open=True) == (EXACT, 0.0)
    assert error_of("mean_queue_ms", is_open=False) is None
