"""How sure the frontier is, from other draws of the workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_explain import OBJECTIVES, trial

from dynosim.hardware_models.errors import UserError
from dynosim.search import SearchSpace, parse_space, search
from dynosim.search.outcome import Outcome, Task
from dynosim.search.replicates import neighbourhood
from dynosim.search.saved_run import load_run
from dynosim.sim.deployment import Deployment

SPACE: dict[str, Any] = {
    "model": "Qwen/Qwen3-32B",
    "gpu": "h200_sxm",
    "max_num_seqs": [1, 2, 3, 4],
    "objectives": ["output_throughput", "ttft"],
    "workload": {"num_prompts": 20, "request_rate": 2.0},
}


def noisy(deployment: Deployment, task: Task) -> Outcome:
    """1 and 2 are always on the frontier; 3 beats 4 in the first draw and in every other one."""
    seqs = deployment.max_num_seqs or 0
    luck = 0.1 * (task.seed % 2)
    throughput = {1: 100.0, 2: 200.0, 3: 301.0, 4: 300.0}[seqs] * (1.0 - luck * (seqs == 3))
    ttft_ms = {1: 10.0, 2: 20.0, 3: 30.0, 4: 30.0}[seqs]
    return Outcome(metrics={"output_throughput": throughput, "p99_ttft_ms": ttft_ms})


def test_a_close_call_is_told_from_a_clear_one(tmp_path: Path) -> None:
    result = search(
        SPACE, workers=1, evaluator=noisy, screen=lambda d: None, replicates=4,
        output_dir=tmp_path, cache_dir=tmp_path / "cache",
    )  # fmt: skip
    assert [t.deployment.max_num_seqs for t in result.frontier] == [1, 2, 3]
    by_seqs = {t.deployment.max_num_seqs: result.shares_best.get(t.number) for t in result.trials}
    assert by_seqs == {1: 1.0, 2: 1.0, 3: 0.5, 4: 0.5}
    header = (tmp_path / "frontier.csv").read_text().splitlines()[0].split(",")
    assert "non_dominated_share" in header
    assert load_run(tmp_path).result.shares_best == result.shares_best


def test_workers_and_replicates_give_the_same_shares() -> None:
    from analytic_evaluator import analytic

    space = parse_space({**SPACE, "max_num_seqs": [8, 16, 17, 32], "objectives": ["ttft"]})
    runs = [
        search(space, workers=n, evaluator=analytic, screen=_runs, replicates=3) for n in (1, 2)
    ]
    assert runs[0].shares_best == runs[1].shares_best != {}


def _runs(deployment: Deployment) -> Outcome | None:
    return None


def test_the_neighbourhood_is_what_is_close_to_the_frontier() -> None:
    front = [trial(0, 100.0, 100.0), trial(1, 200.0, 200.0)]
    near, nearer, far = trial(2, 192.0, 200.0), trial(3, 99.0, 100.0), trial(4, 150.0, 200.0)
    space = SearchSpace(dimensions=(), workload=parse_space(SPACE).workload, objectives=OBJECTIVES)
    trials = [*front, near, nearer, far]
    assert neighbourhood(front, trials, space) == [*front, nearer, near]
    assert neighbourhood([], [], space) == []


def test_a_trace_has_no_replicates(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n0,10,10\n1,10,10\n")
    space = {**SPACE, "workload": {"trace": str(tmp_path / "trace.csv")}}
    with pytest.raises(UserError, match="a trace is one draw"):
        search(space, workers=1, replicates=2)
