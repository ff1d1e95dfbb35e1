"""Estimate everything, simulate what may matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from analytic_evaluator import analytic, screen

from dynosim.search.frontier import hypervolume
from dynosim.search.screened import ScreenedProposer
from dynosim.search.screening import Screening, SpaceEstimator
from dynosim.search.space import SearchSpace, parse_space
from dynosim.search.study import load_workload, search


def wrong_by(
    share: float, space: SearchSpace, seed: int = 0
) -> Callable[[Sequence[int]], Screening]:
    """An estimator whose errors are alike for like backends, ``share`` in size, but for a tenth."""

    def estimator(candidates: Sequence[int]) -> Screening:
        random = np.random.default_rng(seed)
        bias = dict(zip(("vllm", "sglang", "trtllm"), random.normal(0, share, 3), strict=True))
        rows, margins = [], []
        for index in candidates:
            deployment = space.deployment(index)
            outcome = analytic(deployment, None)  # type: ignore[arg-type]
            values = [outcome.metrics[o.metric] for o in space.objectives]
            own = bias[deployment.backend] + random.normal(0, share / 10, len(values))
            rows.append(
                [-o.sign * np.log(v) for o, v in zip(space.objectives, values, strict=True)]
            )
            rows[-1] = list(np.array(rows[-1]) + own)
            margins.append(outcome.instability)
        return Screening(candidates=candidates, losses=np.array(rows), margins=np.array(margins))

    return estimator


@pytest.mark.parametrize("share", [0.0, 0.15, 0.3])
def test_5_percent_of_the_simulations_find_99_percent_of_the_frontier(
    large_space: SearchSpace, share: float
) -> None:
    def found(n_trials: int, **options: object) -> float:
        result = search(
            large_space, n_trials=n_trials, workers=1, evaluator=analytic, screen=screen, **options
        )  # type: ignore[arg-type]
        return hypervolume(result.frontier, large_space.objectives, (0.0, 0.0))

    few = found(96, estimator=wrong_by(share, large_space))
    assert few > 0.99 * found(10_000)


def test_every_candidate_is_proposed_once_and_those_without_an_estimate_last(
    small_space: SearchSpace,
) -> None:
    candidates = range(100)
    losses = np.random.default_rng(0).random((100, 2))
    losses[[3, 50]] = np.nan
    proposer = ScreenedProposer(
        small_space.grid, candidates, losses, np.full(100, -1.0), small_space.objectives, seed=1
    )
    proposed = [proposer.propose() for _ in range(101)]
    assert sorted(p for p in proposed if p is not None) == list(candidates)
    assert proposed[98:] == [3, 50, None]


def test_seeds_differ_and_each_repeats_itself(large_space: SearchSpace) -> None:
    def trials(seed: int) -> list[object]:
        estimator = wrong_by(0.3, large_space)
        result = search(
            large_space, n_trials=48, seed=seed, workers=1,
            evaluator=analytic, screen=screen, estimator=estimator,
        )  # fmt: skip
        return [t.deployment for t in result.trials]

    assert trials(0) == trials(0) != trials(1)


def test_a_space_whose_objective_nobody_estimates_has_no_screening() -> None:
    space = parse_space(
        {
            "model": "Qwen/Qwen3-8B",
            "gpu": "h100",
            "max_num_seqs": [8, 16],
            "objectives": [{"metric": "kv_usage_peak", "direction": "minimize"}],
            "workload": {"num_prompts": 10},
        }
    )
    assert SpaceEstimator(space, load_workload(space))([0, 1]) is None
