"""One worker process: it takes deployments and gives outcomes, and knows nothing of the search.

Imports stay at numpy and SimPy, so that a worker starts in a fraction of a second.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from multiprocessing.process import BaseProcess

from dynosim.search.outcome import Evaluator, Outcome, Task
from dynosim.search.time_limit import time_limit
from dynosim.sim.deployment import Deployment


def evaluate(evaluator: Evaluator, deployment: Deployment, task: Task) -> Outcome:
    """Returns the evaluator's outcome; what it raises becomes the outcome ``error``."""
    try:
        with time_limit(task.timeout_s):
            return evaluator(deployment, task)
    except Exception as error:
        lines = str(error).splitlines() or [""]
        return Outcome(
            reason="error",
            detail=f"{type(error).__name__}: {lines[0]}",
            traceback=traceback.format_exc(),
        )


_job: tuple[Evaluator, Task] | None = None


def start_worker(evaluator: Evaluator, task: Task) -> None:
    """Prepares a worker process: the task arrives once, Ctrl-C is left to the parent."""
    global _job
    _job = (evaluator, task)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    # A killed parent cannot stop its workers, and they would wait on its queue for ever.
    if not parent.is_alive():
        os._exit(1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def answer() -> None:
    """Returns once the process is up."""


def evaluate_in_worker(deployment: Deployment) -> Outcome:
    """Returns the outcome of a deployment on the task that this process was started with."""
    if _job is None:
        raise RuntimeError("start_worker has not run in this process")
    evaluator, task = _job
    return evaluate(evaluator, deployment, task)
