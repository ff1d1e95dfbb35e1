"""A start from nothing: processes, weights, compilation, CUDA graphs."""

from __future__ import annotations

from dynosim.hardware_models.startup.plan import Start
from dynosim.hardware_models.startup.stage import Stage, StartupPlan


def plan(start: Start) -> StartupPlan:
    """Returns a start whose weights are read file by file."""
    return StartupPlan(
        method="cold", stages=engine_stages(start, reader="default"), storage=start.storage
    )


def engine_stages(start: Start, reader: str) -> tuple[Stage, ...]:
    """Returns the stages from the engine's first process to its first request."""
    figures, args = start.figures, start.engine.args
    process_s = figures.process_s if start.num_gpus == 1 else figures.process_parallel_s
    stages = [
        Stage(name="process start", seconds=process_s),
        start.read("weights", start.weight_bytes, reader, figures.model_init_s),
    ]
    if args.enforce_eager:
        stages.append(Stage(name="profiling", seconds=figures.profiling_s))
    elif start.options.startup_compile_cache:
        stages.append(Stage(name="compile (cached)", seconds=figures.compile_cached_s))
        stages.append(Stage(name="profiling", seconds=figures.profiling_cached_s))
    else:
        stages.append(Stage(name="compile", seconds=_compile_s(start)))
        stages.append(Stage(name="profiling", seconds=figures.profiling_s))
    if not args.enforce_eager:
        stages.append(Stage(name="CUDA graphs", seconds=_graphs_s(start)))
    is_pipeline = args.pipeline_parallel_size > 1
    warm_up_s = figures.warm_up_pipeline_s if is_pipeline else figures.warm_up_s
    return (*stages, Stage(name="warm-up", seconds=warm_up_s))


def _layers(start: Start) -> float:
    """Returns the layers of a pipeline stage."""
    return start.engine.model.num_layers / start.engine.args.pipeline_parallel_size


def _compile_s(start: Start) -> float:
    figures = start.figures
    per_layer_s = figures.compile_per_layer_s
    if start.engine.model.quantization.linear_bits_per_weight < 16:
        per_layer_s += figures.compile_quantised_per_layer_s
    wide_s = figures.compile_wide_s if start.engine.args.tensor_parallel_size > 2 else 0.0
    return figures.compile_s + per_layer_s * _layers(start) + wide_s


def _graphs_s(start: Start) -> float:
    figures = start.figures
    moe_s = figures.graphs_moe_s if start.engine.model.moe is not None else 0.0
    return figures.graphs_s + figures.graphs_per_layer_s * _layers(start) + moe_s
