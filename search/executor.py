"""Where candidates are evaluated: in this process, or in a pool of spawned worker processes.

An executor takes deployments and hands back outcomes as they end; order, numbering and the study
are the owner's business.
"""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol

from dynosim.hardware_models.errors import UserError
from dynosim.search.outcome import Evaluator, Outcome, Task
from dynosim.search.uninterrupted import uninterrupted
from dynosim.search.worker import answer, evaluate, evaluate_in_worker, start_worker
from dynosim.sim.deployment import Deployment

_WATCH_S = 0.2
DIED = "the worker process died twice on this candidate (out of memory?)"


class Executor(Protocol):
    """Evaluates deployments; ``submit`` never blocks on a result, ``collect`` does."""

    def submit(self, deployments: Sequence[Deployment]) -> None:
        """Queues deployments for evaluation."""

    def collect(self, timeout_s: float | None) -> list[tuple[Deployment, Outcome]]:
        """Returns what has ended since the last call; waits ``timeout_s`` at most for one."""

    def close(self, *, at_once: bool = False) -> None:
        """Ends the workers; ``at_once`` without waiting for running candidates."""


class SerialExecutor:
    """Evaluates in the calling process, one deployment a ``collect``."""

    def __init__(self, evaluator: Evaluator, task: Task) -> None:
        self._evaluator, self._task = evaluator, task
        self._queued: list[Deployment] = []

    def submit(self, deployments: Sequence[Deployment]) -> None:
        self._queued.extend(deployments)

    def collect(self, timeout_s: float | None) -> list[tuple[Deployment, Outcome]]:
        if not self._queued or timeout_s == 0:
            return []
        deployment = self._queued[0]
        outcome = evaluate(self._evaluator, deployment, self._task)
        self._queued.pop(0)
        return [(deployment, outcome)]

    def close(self, *, at_once: bool = False) -> None:
        self._queued.clear()


class PoolExecutor:
    """Evaluates in ``workers`` spawned processes; survives the death of any of them.

    Ctrl-C never cuts into the pool's own code, which would leave its locks held for ever. When a
    worker dies, the candidates in flight are run again one at a time; the one that kills
    its worker again is an ``error`` outcome and the others are kept.
    """

    def __init__(self, evaluator: Evaluator, task: Task, workers: int) -> None:
        self._evaluator, self._task, self._workers = evaluator, task, workers
        self._running: dict[Future[Outcome], Deployment] = {}
        self._suspects: list[Deployment] = []
        self._pool = self._start(workers)
        self._first_sign: Future[None] | None = self._pool.submit(answer)

    def _await_first_sign(self) -> None:
        """Raises UserError where no worker process comes up; otherwise does nothing."""
        sign, self._first_sign = self._first_sign, None
        try:
            if sign is not None:
                sign.result()
        except BrokenProcessPool:
            raise UserError(
                "worker processes cannot start",
                where="workers",
                hint='call search() under `if __name__ == "__main__":`, or with workers=1',
            ) from None

    def _start(self, workers: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=start_worker,
            initargs=(self._evaluator, self._task),
        )

    def submit(self, deployments: Sequence[Deployment]) -> None:
        self._await_first_sign()
        for deployment in deployments:
            with uninterrupted():
                self._submit(deployment)

    def _submit(self, deployment: Deployment) -> None:
        try:
            self._running[self._pool.submit(evaluate_in_worker, deployment)] = deployment
        except BrokenProcessPool:
            self._suspects.append(deployment)

    def collect(self, timeout_s: float | None) -> list[tuple[Deployment, Outcome]]:
        if self._suspects:
            return self._retry()
        done = self._wait(math.inf if timeout_s is None else timeout_s)
        ended = []
        for future in done:
            deployment = self._running.pop(future)
            try:
                ended.append((deployment, future.result()))
            except BrokenProcessPool:
                self._suspects.append(deployment)
        return ended

    def _wait(self, timeout_s: float) -> set[Future[Outcome]]:
        """Returns the candidates that have ended; waits for one, or for Ctrl-C, at most so long."""
        done: set[Future[Outcome]] = set()
        with uninterrupted() as pressed:
            while not done and not pressed and timeout_s >= 0:
                done, _ = wait(self._running, min(timeout_s, _WATCH_S), FIRST_COMPLETED)
                timeout_s = timeout_s - _WATCH_S if timeout_s else -1.0
        return done

    def _retry(self) -> list[tuple[Deployment, Outcome]]:
        suspects = [*self._suspects, *self._running.values()]
        self._suspects, self._running = [], {}
        self._end(self._pool)
        ended = []
        # A pool of one: when it dies, the candidate in flight is the one that killed it.
        alone = self._start(1)
        for deployment in suspects:
            try:
                outcome = alone.submit(evaluate_in_worker, deployment).result()
            except BrokenProcessPool:
                outcome = Outcome(reason="error", detail=DIED)
                alone = self._start(1)
            ended.append((deployment, outcome))
        alone.shutdown()
        self._pool = self._start(self._workers)
        return ended

    def close(self, *, at_once: bool = False) -> None:
        with uninterrupted():
            if at_once:
                self._end(self._pool)
            self._pool.shutdown(wait=True, cancel_futures=True)

    @staticmethod
    def _end(pool: ProcessPoolExecutor) -> None:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
