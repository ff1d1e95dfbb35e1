"""vLLM's engine stepped by hand: no HTTP, and a clock that a busy machine does not stretch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Candidate, need_backend
from dynosim.planning.exports.knobs import flags
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.observed import ObservedRun
from dynosim.verification.stepped.run import SteppedRun, run_stepped
from dynosim.verification.stepped.step_record import write_step_log
from dynosim.verification.subprocess_group import running
from dynosim.verification.target import Running, Target, TargetOptions
from dynosim.verification.vllm_engine.engine import ENVIRONMENT, WORKER, VllmEngine

CONFIG = "config.json"


def make(options: TargetOptions) -> Target:
    """Returns the target; ``options.command`` is a Python that has vLLM, by default this one."""
    return VllmInProcess(options)


class VllmInProcess:
    """Starts vLLM's ``LLMEngine`` with the candidate's flags in a process of its own, on one core.

    The user's arguments come last, e.g. ``--dtype float32``. Known limits: one GPU or CPU, no
    asynchronous scheduling, no front-end.
    """

    def __init__(self, options: TargetOptions) -> None:
        self._options = options

    @contextmanager
    def run(self, candidate: Candidate) -> Iterator[Running]:
        """Yields the engine; its log is ``vllm.log`` in the options' folder, steps beside it.

        Raises UserError for a candidate that it cannot run, and as :meth:`VllmEngine.start`.
        """
        check(candidate)
        options = self._options
        options.folder.mkdir(parents=True, exist_ok=True)
        log = options.folder / "vllm.log"
        argv = [*(options.command or (sys.executable,)), str(WORKER)]
        with running(argv, log, env={**os.environ, **ENVIRONMENT}, talks=True) as process:
            engine = VllmEngine(process, log)
            engine.start(words(candidate, options), options.start_timeout_s)
            yield SteppedVllm(engine, options.folder)


def words(candidate: Candidate, options: TargetOptions) -> list[str]:
    """Returns the engine's arguments; a model named by its ``config.json`` is that folder."""
    model = options.model or candidate.model.removesuffix(f"/{CONFIG}")
    return ["--model", model, *flags(candidate), *options.arguments]


def check(candidate: Candidate) -> None:
    """Raises UserError for a candidate that this target cannot run."""
    need_backend(candidate, "vllm-in-process", "vllm")
    deployment = candidate.deployment
    most_one = {
        "replicas": deployment.replicas,
        "tensor_parallel_size": deployment.tensor_parallel_size,
        "pipeline_parallel_size": deployment.pipeline_parallel_size,
        "data_parallel_size": deployment.data_parallel_size,
    }
    for field, value in most_one.items():
        if value > 1:
            raise UserError(f"vllm-in-process takes 1, found {value}", where=field)
    if candidate.engine.backend.asynchronous_scheduling:
        raise UserError(
            "vllm-in-process steps one batch at a time",
            where="async_scheduling",
            hint="async_scheduling: false",
        )


@dataclass(frozen=True)
class SteppedVllm:
    """A running engine. Every measurement leaves its steps as ``steps-N.jsonl.gz``."""

    engine: VllmEngine
    folder: Path

    def measure(self, plan: LoadPlan) -> ObservedRun:
        """Returns what requests saw on the virtual clock; raises what :meth:`stepped` raises."""
        return self.stepped(plan).observed

    def stepped(self, plan: LoadPlan) -> SteppedRun:
        """Returns the same with every step; raises as :meth:`VllmEngine.step`, and as
        :func:`~..stepped.run.run_stepped`."""
        run = run_stepped(plan, self.engine, self.engine.clock())
        number = len(list(self.folder.glob("steps-*.jsonl.gz"))) + 1
        path = self.folder / f"steps-{number}.jsonl.gz"
        facts = {**run.observed.facts, "warmup_steps": len(run.warmup_steps)}
        write_step_log(path, run.warmup_steps + run.steps, facts)
        return run
