"""Simulates cases as they were run, alone or in a pool of processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess

from dynosim.accuracy.case import Case
from dynosim.accuracy.kinds import basis_of
from dynosim.accuracy.max_rate import largest_rate
from dynosim.hardware_models.errors import UserError
from dynosim.sim.metrics import Metrics
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.columns import Workload

_REQUESTS_PER_TASK = 2_000
"""Requests that a worker is handed at once: about a tenth of a second's work."""

Report = Callable[[int], None]
"""Told after every case how many requests more have been simulated."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """A case and what was predicted for it; ``refusal`` says why where nothing was.

    ``basis`` is the provenance that vouches least among those of the step's parts.
    """

    case: Case
    predicted: Metrics
    basis: str = ""
    refusal: str | None = None

    def error(self, metric: str) -> float:
        """Returns predicted / measured - 1; NaN where either is missing."""
        measured = self.case.measured.get(metric, float("nan"))
        return self.predicted.get(metric, float("nan")) / measured - 1.0


def run_case(case: Case, overheads: Mapping[str, float] | None = None) -> Outcome:
    """Returns the outcome of one case, under ``overheads`` in place of the backend's own.

    What the case says of its own overheads holds over both.
    """
    load = case.workload
    figures = {**(overheads or {}), **case.overheads}
    try:
        workload = load if isinstance(load, Workload) else build_workload(load)
        simulation = simulate(case.deployment, workload, seed=case.seed, overheads=figures)
        rates = _searched(case, figures) if case.limits_ms else {}
    except UserError as error:
        return Outcome(case=case, predicted={}, refusal=str(error).splitlines()[0])
    basis = basis_of(simulation)
    return Outcome(case=case, predicted=simulation.metrics() | rates, basis=basis)


def _searched(case: Case, overheads: Mapping[str, float]) -> Metrics:
    """Returns the largest rate that meets the case's limits, as its request throughput."""
    load = case.workload
    if isinstance(load, Workload) or load.request_rate is None:
        raise ValueError(f"{case.row}: a rate is searched for synthetic requests that have one")

    def run(rate: float) -> Metrics:
        workload = build_workload(replace(load, request_rate=rate))
        return simulate(case.deployment, workload, seed=case.seed, overheads=overheads).metrics()

    return {"request_throughput": largest_rate(run, case.limits_ms, load.request_rate)}


def num_requests(case: Case) -> int:
    """Returns how many requests a case simulates: what its cost grows with."""
    load = case.workload
    return len(load) if isinstance(load, Workload) else load.num_prompts or 1_000


def run_cases(
    cases: Sequence[Case],
    *,
    jobs: int = 1,
    overheads: Mapping[str, float] | None = None,
    report: Report = lambda requests: None,
) -> list[Outcome]:
    """Returns the outcomes in the order of ``cases``, the same for any number of ``jobs``.

    Processes are spawned: with ``jobs`` above 1 a script must call this under
    ``if __name__ == "__main__":``. Ctrl-C ends the workers and raises KeyboardInterrupt.
    """
    if jobs == 1 or len(cases) < 2:
        return [_reported(run_case(case, overheads), report) for case in cases]
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker
    )
    outcomes: dict[int, Outcome] = {}
    try:
        tasks: dict[Future[list[_Answer]], list[int]] = {
            pool.submit(_run_task, [cases[i] for i in task], overheads): task
            for task in _tasks(cases)
        }
        for future in as_completed(tasks):
            for i, answer in zip(tasks[future], future.result(), strict=True):
                predicted, basis, refusal = answer
                outcome = Outcome(case=cases[i], predicted=predicted, basis=basis, refusal=refusal)
                outcomes[i] = _reported(outcome, report)
    except BrokenProcessPool:
        raise UserError(
            "a worker process died", where="jobs", hint="out of memory? try fewer jobs"
        ) from None
    finally:
        _end(pool)
    return [outcomes[i] for i in range(len(cases))]


def _end(pool: ProcessPoolExecutor) -> None:
    """Ends the workers without waiting for cases that nobody wants any more."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(wait=True, cancel_futures=True)


_Answer = tuple[Metrics, str, str | None]


def _run_task(cases: list[Case], overheads: Mapping[str, float] | None) -> list[_Answer]:
    """Runs in a worker; what the parent already has does not travel back."""
    outcomes = [run_case(case, overheads) for case in cases]
    return [(o.predicted, o.basis, o.refusal) for o in outcomes]


def _tasks(cases: Sequence[Case]) -> Iterator[list[int]]:
    """Yields the indices of cases that travel together, the costliest first.

    A long case that started last would leave all other processes waiting for it.
    """
    task: list[int] = []
    requests = 0
    for i in sorted(range(len(cases)), key=lambda i: -num_requests(cases[i])):
        task.append(i)
        requests += num_requests(cases[i])
        if requests >= _REQUESTS_PER_TASK:
            yield task
            task, requests = [], 0
    if task:
        yield task


def _reported(outcome: Outcome, report: Report) -> Outcome:
    report(num_requests(outcome.case))
    return outcome


def _start_worker() -> None:
    """Leaves Ctrl-C to the parent, and ends this process when the parent ends in any way."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "not a worker"
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
