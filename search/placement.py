"""Where a search's candidates are evaluated: this process, its pool, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

from dynosim.hardware_models.errors import UserError
from dynosim.search.executor import Executor, PoolExecutor, SerialExecutor
from dynosim.search.field_type import shown
from dynosim.search.outcome import Evaluator, Task

ExecutorName = Literal["process", "dask"]
MakeExecutor = Callable[[Evaluator, Task], Executor]
"""Returns an executor for one task."""


def check_executor(name: str, scheduler: str | None) -> None:
    """Raises UserError for an executor that does not exist, or a scheduler that nobody asks."""
    if name not in get_args(ExecutorName):
        raise UserError(f"found {shown(name)}", where="executor", hint="allowed: process, dask")
    if scheduler is not None and name != "dask":
        raise UserError(
            "only the executor dask has a scheduler", where="dask_scheduler", hint="--executor dask"
        )


@contextmanager
def executors(name: ExecutorName, workers: int, scheduler: str | None) -> Iterator[MakeExecutor]:
    """Returns what makes executors, for as long as the block lasts."""
    if name == "dask":
        from dynosim.search.dask_executor import DaskCluster

        with DaskCluster(scheduler, workers) as cluster:
            yield cluster.executor
    elif workers == 1:
        yield SerialExecutor
    else:
        yield lambda evaluator, task: PoolExecutor(evaluator, task, workers)
