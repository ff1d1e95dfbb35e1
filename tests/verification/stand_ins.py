"""Stand-ins of the verification tests: runs of a known result, and engines of a known speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Candidate
from dynosim.search.result import SearchResult
from dynosim.search.space import parse_space
from dynosim.search.trial import Trial
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload
from dynosim.verification.choice import Pick
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.measured import Measured
from dynosim.verification.observed import ObservedRequest, ObservedRun

GPU, USER = "output_tok_s_per_gpu", "output_tok_s_per_user"


def trial(number: int, per_gpu: float, per_user: float, **fields: object) -> Trial:
    """A feasible trial with the two objectives, in tokens a second."""
    deployment = Deployment(model="Qwen/Qwen3-8B", gpu="h100", max_num_seqs=number + 1)
    return Trial(
        number=number,
        deployment=replace(deployment, **fields),  # type: ignore[arg-type]
        metrics={GPU: per_gpu, USER: per_user, "num_gpus": 1.0, "usd_per_hour": 2.0},
        timing="measured",
    )


def run_of(trials: Sequence[Trial], **settings: object) -> SearchResult:
    """A finished run of these trials."""
    space = parse_space({"model": "Qwen/Qwen3-8B", "gpu": "h100", **settings})
    return SearchResult(space=space, trials=tuple(trials), mode="exhaustive")


def measured(
    trial: Trial, *repeats: tuple[float, float], failure: str | None = None, has_died: bool = False
) -> Measured:
    """What repeats measured of the two objectives; price and GPUs are the trial's."""
    return Measured(
        pick=Pick(trial=trial, reason="because"),
        repeats=tuple({**trial.metrics, GPU: a, USER: b} for a, b in repeats),
        failure=failure,
        has_died=has_died,
    )


@dataclass
class ScaledEngines:
    """A target whose engines do what the simulator predicts, so many times slower.

    ``slowness`` tells how many times, of a deployment and the number of measurements before;
    ``started`` counts starts. ``refuses`` says why a deployment does not start.
    """

    slowness: Callable[[Deployment, int], float]
    refuses: Callable[[Deployment], str | None] = lambda d: None
    facts: dict[str, float | str] = field(default_factory=dict)
    started: list[Deployment] = field(default_factory=list)
    measurements: int = 0

    @contextmanager
    def run(self, candidate: Candidate) -> Iterator[ScaledEngine]:
        reason = self.refuses(candidate.deployment)
        if reason is not None:
            raise UserError(reason)
        self.started.append(candidate.deployment)
        yield ScaledEngine(self, candidate)


@dataclass
class ScaledEngine:
    """One candidate, running."""

    target: ScaledEngines
    candidate: Candidate

    def measure(self, plan: LoadPlan) -> ObservedRun:
        candidate, target = self.candidate, self.target
        slowness = target.slowness(candidate.deployment, target.measurements)
        target.measurements += 1
        load = build_workload(candidate.workload)
        assert load.max_concurrency is not None, "only a closed loop is as slow as its engine"
        result = simulate(candidate.deployment, load, seed=candidate.seed).result
        rows = zip(
            (result.sent_s * slowness).tolist(),
            (result.first_token_s * slowness).tolist(),
            (result.finish_s * slowness).tolist(),
            load.input_tokens.tolist(),
            load.output_tokens.tolist(),
            strict=True,
        )
        requests = tuple(
            ObservedRequest(
                index=i,
                planned_s=sent_s,
                sent_s=sent_s,
                token_s=np.linspace(first_s, last_s, tokens).tolist() if tokens > 1 else [first_s],
                input_tokens=prompt,
            )
            for i, (sent_s, first_s, last_s, prompt, tokens) in enumerate(rows)
        )
        duration_s = float(result.finish_s.max()) * slowness
        return ObservedRun(
            requests=requests, duration_s=duration_s, clock="simulated", facts=target.facts
        )
