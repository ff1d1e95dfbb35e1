"""What runs on a Dask worker: one candidate a call, judged by the same code as everywhere."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from dynosim.search.identity import data_sha256
from dynosim.search.outcome import Evaluator, Outcome, Task
from dynosim.search.outcome_cache import code_sha256
from dynosim.search.worker import evaluate
from dynosim.sim.deployment import Deployment


@dataclass(frozen=True, eq=False)
class Job:
    """What one search asks of its workers; ``fingerprint`` is that of the owner's dynosim."""

    evaluator: Evaluator
    task: Task
    fingerprint: str


def dask_setup(worker: object) -> None:
    """Leaves Ctrl-C to the owner; Dask calls it in every worker process of a local cluster."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def own_fingerprint() -> str:
    """Returns the digest of the code, data and plug-ins that decide an outcome here."""
    return code_sha256() + data_sha256()


def hold(job: Job) -> Job:
    """Returns the job: as a task's result it stays on the workers that need it."""
    return job


def evaluate_job(job: Job, deployment: Deployment) -> Outcome | None:
    """Returns the outcome of a deployment; None where this worker is not like its owner."""
    if own_fingerprint() != job.fingerprint:
        return None
    return evaluate(job.evaluator, deployment, job.task)
