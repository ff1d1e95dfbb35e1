"""What is to be measured: picks of a run, the load, and what is predicted for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Candidate
from dynosim.search.evaluator import simulate_candidate
from dynosim.search.outcome import Task
from dynosim.search.result import SearchResult
from dynosim.search.saved_run import SavedRun
from dynosim.search.slo import goodput_limits
from dynosim.search.study import make_task
from dynosim.search.trial import Trial
from dynosim.sim.metrics import GOODPUT_KINDS
from dynosim.sim.simulate import resolve_for
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.verification.choice import Pick, choose, named
from dynosim.verification.comparison import widths
from dynosim.verification.load.plan import plan_load
from dynosim.verification.load.token_ids import TokenIds
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.preference import Preference, preference_of

RunsHere = Callable[[Candidate], bool]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What a user asks to be measured.

    ``top`` picks of the frontier and ``dominated`` controls, or the ``trials`` named instead;
    ``num_prompts`` are the first requests of the load, None for all of it.
    """

    top: int = 3
    dominated: int = 0
    trials: tuple[int, ...] = ()
    num_prompts: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """Picks whose trials have the metrics predicted for ``load``, which ``spec`` describes."""

    result: SearchResult
    preference: Preference
    picks: tuple[Pick, ...]
    spec: WorkloadSpec
    load: Workload
    task: Task

    @property
    def objectives(self) -> tuple[str, ...]:
        """The metrics that the run optimised."""
        return tuple(o.metric for o in self.result.space.objectives)

    def candidate(self, pick: Pick) -> Candidate:
        """Returns a pick as launch files and targets take it."""
        return self.candidate_of(pick.trial)

    def candidate_of(self, trial: Trial) -> Candidate:
        """Returns the same of any trial."""
        deployment = trial.deployment
        limits_ms = goodput_limits(self.result.space.slos)
        return Candidate(
            deployment=deployment,
            engine=resolve_for(deployment.decode_pool, self.load)[0],
            workload=self.spec,
            goodput_ms={k: v for k, v in limits_ms.items() if k in GOODPUT_KINDS},
            seed=self.task.seed,
        )

    def plan(self, pick: Pick, repeat: int, warmup: int) -> LoadPlan:
        """Returns what is sent in one repeat: the same to every pick, new to an engine that saw
        the repeats before."""
        vocabulary = self.candidate(pick).engine.model.vocab_size
        ids = TokenIds.of_vocabulary(vocabulary, seed=self.task.seed + repeat)
        return plan_load(self.load, ids, warmup=warmup)


def prepare(saved: SavedRun, selection: Selection, runs_here: RunsHere | None = None) -> Prepared:
    """Returns what a selection of a run comes to; UserError for one that is impossible.

    With fewer requests than the run had, the picks are simulated again under these. ``runs_here``
    tells whether a candidate can run where it is to be measured; by default all can.
    """
    result = saved.result
    if not saved.is_described:
        raise UserError(
            "its space does not describe the load that was searched under",
            where=str(result.output_dir),
            hint="put back the trace it names, or search again with a `workload:` section",
        )
    preference = preference_of(result)
    if preference is None:
        raise UserError("no trial of the run is feasible", where=str(result.output_dir))
    spec = _spec(result.space.workload, selection.num_prompts)
    load = build_workload(spec)
    task = replace(make_task(result.space, load), seed=result.space.seed)
    prepared = Prepared(
        result=result, preference=preference, picks=(), spec=spec, load=load, task=task
    )
    picks = _picks(prepared, selection, runs_here)
    if spec != result.space.workload:
        picks = [replace(p, trial=predicted_anew(p.trial, task), searched=p.trial) for p in picks]
    return replace(prepared, picks=tuple(picks))


def _spec(spec: WorkloadSpec, num_prompts: int | None) -> WorkloadSpec:
    if num_prompts is None:
        return spec
    if num_prompts < 1:
        raise UserError(f"found {num_prompts}", where="--num-prompts", hint="allowed: >= 1")
    if spec.trace is not None:
        return replace(spec, limit=num_prompts, num_prompts=None)
    return replace(spec, num_prompts=num_prompts)


def _picks(prepared: Prepared, selection: Selection, runs_here: RunsHere | None) -> list[Pick]:
    result = prepared.result
    if selection.trials:
        return named(result, selection.trials)
    if selection.top < 1:
        raise UserError(f"found {selection.top}", where="--top", hint="allowed: >= 1")
    if selection.dominated < 0:
        raise UserError(f"found {selection.dominated}", where="--dominated", hint="allowed: >= 0")
    return choose(
        result,
        prepared.preference,
        top=selection.top,
        dominated=selection.dominated,
        widths=widths(result.short_list, prepared.objectives, is_open=prepared.load.is_open),
        runs_here=lambda trial: runs_here is None or runs_here(prepared.candidate_of(trial)),
    )


def predicted_anew(trial: Trial, task: Task) -> Trial:
    """Returns a trial with the metrics that another load has."""
    outcome = simulate_candidate(trial.deployment, task)
    return replace(trial, metrics=dict(outcome.metrics), timing=outcome.timing)


def expected_s(picks: Sequence[Pick], repeats: int) -> float:
    """Returns how long the loads take by prediction, without starts."""
    return repeats * sum(pick.trial.metrics.get("duration", 0.0) for pick in picks)
