"""Candidates evaluated by the workers of a Dask cluster, here or on other machines.

Dask only carries deployments out and outcomes back: proposals, numbers and the study stay with
the one owner, so that results are those of any other executor. A worker that dies costs the
candidates that it was at, which others run again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

from dynosim.hardware_models.errors import UserError
from dynosim.search.dask_worker import Job, evaluate_job, hold, own_fingerprint
from dynosim.search.outcome import Evaluator, Outcome, Task
from dynosim.sim.deployment import Deployment

CONNECT_S = 10.0
START_S = 60.0
_WATCH_S = 0.5
DIED = "worker processes died on this candidate again and again (out of memory?)"


class DaskCluster:
    """A connection to the scheduler at ``address``, or to ``workers`` processes started here.

    A context manager. UserError where Dask is not installed or the scheduler does not answer.
    """

    def __init__(self, address: str | None, workers: int) -> None:
        self._address, self._workers = address, workers
        self._stack = ExitStack()
        self._client: Any = None

    def __enter__(self) -> DaskCluster:
        try:
            import dask
            import distributed
        except ImportError:
            raise UserError(
                "dask is not installed", where="executor", hint="pip install 'dynosim[dask]'"
            ) from None
        # A workload goes out once a search, however large it is.
        quiet = {"distributed.admin.large-graph-warning-threshold": "1 GB"}
        with self._stack as stack:
            stack.enter_context(dask.config.set(quiet))
            cluster = self._address or stack.enter_context(self._local(distributed))
            self._client = self._connect(distributed, stack, cluster)
            self._stack = stack.pop_all()
        return self

    def _local(self, distributed: Any) -> Any:
        return distributed.LocalCluster(
            n_workers=self._workers,
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
            preload=["dynosim.search.dask_worker"],
        )

    def _connect(self, distributed: Any, stack: ExitStack, cluster: Any) -> Any:
        try:
            client = stack.enter_context(distributed.Client(cluster, timeout=CONNECT_S))
            client.wait_for_workers(1, timeout=START_S)
        except (OSError, TimeoutError, ValueError) as error:
            raise UserError(
                f"no Dask scheduler with workers answers: {error}",
                where=f"dask_scheduler: {self._address}",
                hint="start it with `dask scheduler`, and `dask worker ADDRESS` beside it",
            ) from None
        return client

    def __exit__(self, *ended: object) -> None:
        self._stack.close()

    def executor(self, evaluator: Evaluator, task: Task) -> DaskExecutor:
        """Returns an executor for one task."""
        return DaskExecutor(self._client, Job(evaluator, task, own_fingerprint()))


class DaskExecutor:
    """Evaluates on the workers of ``client`` (a ``distributed.Client``)."""

    def __init__(self, client: Any, job: Job) -> None:
        self._client, self._scope = client, uuid4().hex
        # A task, not scattered data: when all workers that hold it die, the scheduler makes it
        # again.
        self._job = client.submit(hold, job, key=f"dynosim-job-{self._scope}")
        self._running: dict[str, tuple[Any, Deployment]] = {}
        self._done: SimpleQueue[Any] = SimpleQueue()
        self._submitted = 0

    def submit(self, deployments: Sequence[Deployment]) -> None:
        for deployment in deployments:
            self._submitted += 1
            key = f"dynosim-trial-{self._scope}-{self._submitted}"
            future = self._client.submit(evaluate_job, self._job, deployment, key=key)
            self._running[key] = future, deployment
            future.add_done_callback(self._done.put)

    def collect(self, timeout_s: float | None) -> list[tuple[Deployment, Outcome]]:
        ended = []
        for future in self._wait(timeout_s):
            _, deployment = self._running.pop(future.key)
            ended.append((deployment, self._outcome(future)))
        return ended

    def _wait(self, timeout_s: float | None) -> list[Any]:
        """Returns the futures that have ended; waits so long at most for one."""
        limit_s = None if timeout_s is None else time.monotonic() + timeout_s
        done: list[Any] = []
        while self._running and not done:
            left_s = _WATCH_S if limit_s is None else limit_s - time.monotonic()
            try:
                done.append(self._done.get(timeout=min(max(left_s, 0.0), _WATCH_S)))
            except Empty:
                self._check_connection()
                if limit_s is not None and left_s <= 0:
                    break
        while not self._done.empty():
            done.append(self._done.get())
        return done

    def _check_connection(self) -> None:
        if self._client.status not in ("running", "connecting"):
            raise _lost(self._client)

    def _outcome(self, future: Any) -> Outcome:
        from distributed import KilledWorker

        try:
            outcome: Outcome | None = future.result()
        except KilledWorker:
            return Outcome(reason="error", detail=DIED)
        except (OSError, TimeoutError) as error:
            raise _lost(self._client) from error
        except Exception as error:
            if future.cancelled():
                raise _lost(self._client) from error
            raise
        if outcome is None:
            raise UserError(
                "its workers have another dynosim than this process, or other plug-ins or data",
                where="dask_scheduler",
                hint="install the same on every machine: answers would depend on who gives them",
            )
        return outcome

    def close(self, *, at_once: bool = False) -> None:
        futures = [future for future, _ in self._running.values()]
        self._running.clear()
        if self._client.status == "running":
            self._client.cancel([*futures, self._job])


def _lost(client: Any) -> UserError:
    return UserError(
        "the Dask scheduler is gone",
        where=f"dask_scheduler: {client.scheduler.address if client.scheduler else 'closed'}",
        hint="finished trials are safe in the output folder: continue with --resume",
    )
