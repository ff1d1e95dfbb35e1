"""``search()``: from a space and a workload to a frontier."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dynosim.hardware_models.errors import UserError
from dynosim.search.defaults import estimator_of, full_screen, simulator, speller, twin_finder
from dynosim.search.executor import Executor
from dynosim.search.field_type import shown
from dynosim.search.identity import space_sha256
from dynosim.search.ledger import Ledger
from dynosim.search.outcome import Evaluator, Screen, Task
from dynosim.search.outcome_cache import OutcomeCache
from dynosim.search.outputs import TableFormat, check_table_format, write_outputs
from dynosim.search.owner import Owner
from dynosim.search.placement import ExecutorName, MakeExecutor, check_executor, executors
from dynosim.search.plan import Estimator, make_proposer, plan_search
from dynosim.search.progress import Progress, Silent
from dynosim.search.replicates import Start, neighbourhood, redrawn, shares_best
from dynosim.search.result import SearchResult, as_it_is
from dynosim.search.run_folder import RunFolder
from dynosim.search.shared_study import check_storage
from dynosim.search.slo import goodput_limits
from dynosim.search.space import SearchSpace, load_space, parse_space
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload

AnySpace = SearchSpace | str | Path | Mapping[str, Any]


def search(
    space: AnySpace,
    *,
    workload: Workload | None = None,
    output_dir: str | Path | None = None,
    n_trials: int | None = None,
    timeout_s: float | None = None,
    seed: int | None = None,
    workers: int | None = None,
    executor: ExecutorName = "process",
    dask_scheduler: str | None = None,
    storage: str = "journal",
    resume: bool = False,
    overwrite: bool = False,
    table_format: TableFormat = "csv",
    cache_dir: str | Path | None = None,
    replicates: int = 1,
    candidate_timeout_s: float | None = None,
    progress: Progress | None = None,
    evaluator: Evaluator | None = None,
    screen: Screen | None = None,
    estimator: Estimator | None = None,
) -> SearchResult:
    """Returns the frontier of a space, with every trial behind it.

    ``space`` is a :class:`SearchSpace`, the path of its YAML file or a mapping of the same form;
    ``workload`` replaces the one that the space describes. The search simulates at most
    ``n_trials`` candidates (default: the space's) and stops after ``timeout_s`` seconds; where
    no more candidates than that can run it simulates them all, else those that promise most by
    estimate and experience (:mod:`dynosim.search.screened`), or, where nothing can be estimated,
    a sample (:class:`dynosim.search.proposer.TpeProposer`). The result depends on the space, the
    workload and ``seed`` alone, whatever the number of ``workers`` (default: one a CPU).

    With ``output_dir`` the files of :mod:`dynosim.search.outputs` are written there, also after
    Ctrl-C; ``resume`` continues a run from its journal, ``overwrite`` replaces it. UserError
    where the folder holds a run and neither is given. More than one worker needs a script's call
    to stand under ``if __name__ == "__main__":``, and so does ``executor="dask"``: it evaluates on
    the workers of the Dask scheduler at ``dask_scheduler``, or of a cluster started here. A
    ``storage`` of ``postgresql://…`` has the study in that database too, where another host finds
    it (:mod:`dynosim.search.shared_study`).
    ``cache_dir`` keeps outcomes from one search to the next
    (:class:`dynosim.search.outcome_cache.OutcomeCache`). With ``replicates`` the frontier and what
    is close to it are simulated on so many draws of the workload
    (:mod:`dynosim.search.replicates`). A candidate that raises, or takes longer than
    ``candidate_timeout_s``, is a failed trial with its traceback. Of an ``evaluator`` of one's own
    nothing is known beforehand, unless an ``estimator`` comes with it.
    """
    begin_s = time.monotonic()
    settled = settle(space, n_trials=n_trials, seed=seed)
    count = _worker_count(workers)
    _check_timeout(timeout_s, "timeout")
    _check_timeout(candidate_timeout_s, "candidate_timeout")
    check_table_format(table_format)
    check_executor(executor, dask_scheduler)
    check_storage(storage, output_dir is not None)
    if _whole(replicates, "replicates", 1) > 1:
        redrawn(settled, 1)
    load = load_workload(settled, workload)
    twin_of = twin_finder(load) if evaluator is None else None
    spelled = speller(load) if evaluator is None else as_it_is
    if evaluator is None and estimator is None:
        estimator = estimator_of(settled, load)
    evaluator, screen = evaluator or simulator(), full_screen(settled, load, screen)
    with contextlib.ExitStack() as stack:
        folder = None
        if output_dir is not None:
            folder = RunFolder(Path(output_dir), resume=resume, overwrite=overwrite)
            stack.enter_context(folder)
        ledger = _ledger(folder, settled, load, storage)
        if ledger is not None:
            stack.callback(ledger.close)
        plan = plan_search(settled, screen, estimator, twin_of)
        task = replace(make_task(settled, load), timeout_s=candidate_timeout_s)
        useful = min(count, max(1, plan.simulations))
        make = stack.enter_context(executors(executor, useful, dask_scheduler))
        start = _starter(make, evaluator, cache_dir)
        hands, cache = start(task)
        stack.callback(hands.close, at_once=True)
        reporter = stack.enter_context(progress or Silent())
        reporter.begin(settled, plan.simulations)
        owner = Owner(
            space=settled,
            proposer=make_proposer(settled, plan),
            screen=screen,
            executor=hands,
            ledger=ledger,
            cache=cache,
            deadline_s=None if timeout_s is None else begin_s + timeout_s,
            on_trial=reporter.update,
        )
        ending = owner.run()
        result = SearchResult(
            space=settled,
            trials=owner.ended,
            mode=plan.mode,
            ending=ending,
            workers=count,
            wall_s=time.monotonic() - begin_s,
            simulated_here=owner.simulated_here,
            output_dir=None if folder is None else folder.path,
            screening=plan.screening,
            spelled=spelled,
            is_open=load.is_open,
            screen=screen,
        )
        if replicates > 1 and ending == "finished":
            rivals = neighbourhood(result.frontier, result.trials, settled)
            shares = shares_best(rivals, settled, task, replicates, start)
            result = replace(result, shares_best=shares, wall_s=time.monotonic() - begin_s)
        if folder is not None:
            write_outputs(
                folder,
                result,
                load,
                table_format=table_format,
                is_described=workload is None,
            )
    return result


def settle(space: AnySpace, *, n_trials: int | None = None, seed: int | None = None) -> SearchSpace:
    """Returns the space itself, loaded if need be, with the call's own settings in it."""
    if isinstance(space, str | Path):
        space = load_space(space)
    elif not isinstance(space, SearchSpace):
        space = parse_space(space)
    return replace(
        space,
        n_trials=space.n_trials if n_trials is None else _whole(n_trials, "n_trials", 1),
        seed=space.seed if seed is None else _whole(seed, "seed", 0),
    )


def _whole(value: object, name: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        allowed = f"allowed: a whole number ≥ {least}"
        raise UserError(f"found {shown(value)}", where=name, hint=allowed)
    return value


def load_workload(space: SearchSpace, workload: Workload | None = None) -> Workload:
    """Returns the given workload, checked, or the one that the space describes."""
    return build_workload(space.workload) if workload is None else workload.check()


def _worker_count(workers: int | None) -> int:
    if workers is None:
        has_affinity = hasattr(os, "sched_getaffinity")
        return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return _whole(workers, "workers", 1)


def _check_timeout(timeout_s: float | None, name: str) -> None:
    if timeout_s is not None and not timeout_s > 0:
        raise UserError(f"found {shown(timeout_s)}", where=name, hint="allowed: seconds > 0")


def make_task(space: SearchSpace, workload: Workload) -> Task:
    """Returns what every candidate of the space is judged on."""
    return Task(
        workload=workload,
        seed=space.seed,
        max_refused=_unavoidable_refusals(space, workload),
        goodput_ms=goodput_limits(space.slos),
    )


def _unavoidable_refusals(space: SearchSpace, workload: Workload) -> int:
    """Returns how many requests are too long for every ``max_model_len`` of the space."""
    limits = [v for d in space.dimensions if d.name == "max_model_len" for v in d.values]
    if not limits or None in limits:
        return 0
    return int(np.sum(workload.input_tokens + workload.output_tokens > max(limits)))


def _starter(make: MakeExecutor, evaluator: Evaluator, cache_dir: str | Path | None) -> Start:
    def start(task: Task) -> tuple[Executor, OutcomeCache | None]:
        cache = None if cache_dir is None else OutcomeCache(Path(cache_dir), evaluator, task)
        return make(evaluator, task), cache

    return start


def _ledger(
    folder: RunFolder | None, space: SearchSpace, workload: Workload, storage: str
) -> Ledger | None:
    if folder is None:
        return None
    identity = space_sha256(space, workload)
    return Ledger(folder.journal, space.dimensions, space.objectives, identity, storage)
