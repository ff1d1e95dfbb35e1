"""The built-in engine on PyTorch, in this process: measurable where no other can be installed."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.measure.torch_bench import TorchBench
from dynosim.hardware_models.memory.plan import plan_memory
from dynosim.planning.exports.base import Candidate, need_backend
from dynosim.sim.engine_limits import engine_limits
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.observed import ObservedRun
from dynosim.verification.stepped.clocks import Clock, Probed, process_cpu, wall
from dynosim.verification.stepped.engine import StepEngine
from dynosim.verification.stepped.run import SteppedRun, run_stepped
from dynosim.verification.stepped.step_record import write_step_log
from dynosim.verification.target import Running, Target, TargetOptions
from dynosim.verification.torch_engine.build import EngineOptions, build_engine
from dynosim.verification.torch_engine.decoder_config import read_decoder_config
from dynosim.verification.torch_engine.throttling import throttle_notes

PROBE_ROWS, PROBE_ELEMENTS = 384, 1 << 20
"""The probe is a square product and a sum over four megabytes, the first bound by arithmetic and
the second by memory, as an engine's steps are."""

PROBE_S = 2.0e-3
"""Costs are told in seconds of a processor on which the probe takes this long, so that runs of
different processes and hours can be compared."""


def make(options: TargetOptions) -> Target:
    """Returns the target on ``options.device``, which has started nothing."""
    return BuiltinTorch(options)


class BuiltinTorch:
    """Random weights of the candidate's model, batched as vLLM does; greedy, one device.

    On a CPU it computes in float32 with one thread, on a GPU in the checkpoint's dtype. The KV
    cache has the predicted size on a CPU, and what memory leaves on a GPU, unless the candidate
    says how large it is. Known limits: dense models of few families, no quantisation, no
    asynchronous scheduling, no front-end.
    """

    def __init__(self, options: TargetOptions) -> None:
        self._options = options

    @contextmanager
    def run(self, candidate: Candidate) -> Iterator[Running]:
        """Yields the engine; every measurement leaves its steps in the options' folder.

        Raises UserError for what the engine cannot be, for a device that is not there, and where
        the device cannot hold it.
        """
        check(candidate)
        wanted = engine_options(candidate)
        bench = TorchBench(self._options.device)
        if not bench.lab.on_gpu:
            wanted = replace(wanted, dtype="float32")
        engine = build_engine(bench.lab, wanted_blocks(wanted, candidate, bench.lab.on_gpu))
        self._options.folder.mkdir(parents=True, exist_ok=True)
        running = SteppedEngine(engine, bench, self._options.folder)
        del engine
        try:
            yield running
        finally:
            # The caller may keep what it was given; its memory is for the next engine.
            running.engine = None
            if bench.lab.on_gpu:
                gc.collect()
                bench.lab.torch.cuda.empty_cache()


def check(candidate: Candidate) -> None:
    """Raises UserError for what the engine cannot be, with the field that asks for it."""
    need_backend(candidate, "builtin-torch", "vllm")
    deployment = candidate.deployment
    only = {
        "replicas": (deployment.replicas, 1),
        "prefill_replicas": (deployment.prefill_replicas, 0),
        "tensor_parallel_size": (deployment.tensor_parallel_size, 1),
        "pipeline_parallel_size": (deployment.pipeline_parallel_size, 1),
        "data_parallel_size": (deployment.data_parallel_size, 1),
        "kv_cache_dtype": (candidate.engine.args.kv_cache_dtype, "auto"),
        "quantization": (candidate.engine.args.quantization, "none"),
        "async_scheduling": (candidate.engine.backend.asynchronous_scheduling, False),
    }
    for field, (found, allowed) in only.items():
        if found != allowed:
            hint = f"allowed: {str(allowed).lower()}"
            raise UserError(f"builtin-torch has no {found}", where=field, hint=hint)


def engine_options(candidate: Candidate) -> EngineOptions:
    """Returns what the engine of a candidate is built from, its KV cache as predicted.

    Raises UserError for a model that the engine does not compute.
    """
    engine = candidate.engine
    args = engine.args
    assert args.max_model_len is not None, "unresolved engine"
    assert args.gpu_memory_utilization is not None, "unresolved engine"
    return EngineOptions(
        model=read_decoder_config(engine.model.name),
        limits=engine_limits(engine, leap=False),
        max_model_len=args.max_model_len,
        dtype=engine.model.base_dtype,
        # One of vLLM's blocks is its null block, which no request gets.
        num_blocks=plan_memory(engine).num_gpu_blocks - 1,
        memory_share=args.gpu_memory_utilization,
        graphs=not args.enforce_eager,
    )


def wanted_blocks(options: EngineOptions, candidate: Candidate, on_gpu: bool) -> EngineOptions:
    """Returns the options with the KV cache that a GPU's memory leaves, unless its size is set."""
    args = candidate.deployment
    is_set = args.num_gpu_blocks_override or args.kv_cache_memory_bytes
    return options if is_set or not on_gpu else replace(options, num_blocks=None)


def cpu_clock(torch: Any) -> Clock:
    """Returns the process's clock, freed of how fast the machine happens to be."""
    square, line = torch.ones(PROBE_ROWS, PROBE_ROWS), torch.ones(PROBE_ELEMENTS)

    def mix() -> None:
        torch.mm(square, square)
        torch.add(line, 1.0)

    return Probed(process_cpu(), mix, PROBE_S)


@dataclass(eq=False)
class SteppedEngine:
    """A running engine, None once it ended. A measurement leaves its steps as
    ``steps-N.jsonl.gz``."""

    engine: StepEngine | None
    bench: TorchBench
    folder: Path

    def measure(self, plan: LoadPlan) -> ObservedRun:
        """Returns what requests saw on the virtual clock; raises what :meth:`stepped` raises."""
        return self.stepped(plan).observed

    def stepped(self, plan: LoadPlan) -> SteppedRun:
        """Returns the same with every step; UserError as :func:`~..stepped.run.run_stepped`."""
        assert self.engine is not None, "the engine has ended"
        lab = self.bench.lab
        clock = wall(lab.torch.cuda.synchronize) if lab.on_gpu else cpu_clock(lab.torch)
        states = [self.bench.state()]
        run = run_stepped(plan, self.engine, clock)
        states.append(self.bench.state())
        observed = replace(
            run.observed,
            notes=(*run.observed.notes, *throttle_notes(states)),
            facts={**run.observed.facts, **_origin(self.bench), **_clocks(states)},
        )
        number = len(list(self.folder.glob("steps-*.jsonl.gz"))) + 1
        facts = {**observed.facts, "warmup_steps": len(run.warmup_steps)}
        path = self.folder / f"steps-{number}.jsonl.gz"
        write_step_log(path, run.warmup_steps + run.steps, facts)
        return replace(run, observed=observed)


def _origin(bench: TorchBench) -> dict[str, float | str]:
    """Returns what of the bench's origin tells one device from another."""
    origin = bench.origin()
    return {name: str(origin[name]) for name in ("device", "torch", "driver") if name in origin}


def _clocks(states: list[Mapping[str, Any] | None]) -> dict[str, float | str]:
    """Returns the lowest clock and the highest temperature that were read."""
    read = [state for state in states if state is not None]
    if not read:
        return {}
    return {
        "sm_clock_mhz": min(float(state["sm_clock_mhz"]) for state in read),
        "temperature_c": max(float(state["temperature_c"]) for state in read),
    }
