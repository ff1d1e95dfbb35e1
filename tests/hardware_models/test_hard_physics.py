"""No step of any model on any GPU beats the hardware: t >= max(FLOP / peak, bytes / bandwidth).

Work is counted here from the architecture's parameters, not from the ops that the timer prices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.gpus import get_gpu, list_gpus
from dynosim.hardware_models.llm.architecture import LayerGroup, LlmArchitecture
from dynosim.hardware_models.llm.catalog import get_model, list_models
from dynosim.hardware_models.llm.parameters import layer_parameters
from dynosim.hardware_models.llm.quantization import NO_QUANTIZATION
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing import columns, roofline
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.hardware_models.timing.weight_format import executed_format

# Neighbours in the list of GPUs differ in all three, so that most combinations occur somewhere
# while engines on one GPU share their kernels. Checkpoints bring formats of their own.
BACKENDS = ("vllm", "sglang", "trtllm")
DEGREES = (1, 2, 4, 8)
FORMATS = ("none", "fp8 weights", "fp8 cache", "both", "none")


TIMELESS: dict[str, Any] = {
    "name": "",
    "family": "",
    "max_position_embeddings": 0,
    "tie_word_embeddings": False,
    "extra_parameters": 0,
    "is_multimodal": False,
    "rotary_positions": None,
}
"""Fields of an architecture that memory depends on and time does not."""


@dataclass(frozen=True)
class Shape:
    """One chunk behind a prefix and sequences that decode, all with one context."""

    chunk: int = 0
    prefix: int = 0
    decodes: int = 0
    context: int = 0


SHAPES = (
    Shape(decodes=1, context=100),
    Shape(decodes=64, context=4000),
    Shape(decodes=200, context=900),
    Shape(chunk=16, prefix=100_000),
    Shape(chunk=7000),
    Shape(chunk=2048, prefix=30_000),
    Shape(chunk=512, prefix=700, decodes=64, context=3000),
)


def attention_work(model: LlmArchitecture, group: LayerGroup, shape: Shape) -> tuple[float, float]:
    """FLOP and elements of KV cache read by one layer over all shards."""
    if group.mixer not in ("attention", "mla"):
        return 0.0, 0.0
    window = group.window or 10**9
    seen = shape.decodes * min(shape.context, window)
    # Queries of the chunk see their prefix and, on average, half of the chunk, up to the window.
    last, first = min(shape.prefix + shape.chunk, window), min(shape.prefix, window)
    pairs = seen + shape.chunk * (first + last) / 2
    read = seen + min(shape.prefix + shape.chunk, window) * (shape.chunk > 0)
    if model.mla is not None and group.mixer == "mla":
        dims = model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim + model.mla.v_head_dim
        return 2.0 * pairs * model.num_attention_heads * dims, read * model.mla.latent_dim
    flop = 4.0 * pairs * model.num_attention_heads * model.head_dim
    return flop, 2.0 * read * model.num_key_value_heads * model.head_dim


def weight_parts(model: LlmArchitecture, group: LayerGroup) -> Iterator[tuple[float, float, str]]:
    """Parameters that one token meets, their bits and their format."""
    p, q = layer_parameters(model, group), model.quantization
    plain = (16.0, model.base_dtype)
    linear = (q.linear_bits_per_weight, q.linear)
    yield (p.attention + p.key_value, *(linear if q.quantizes_attention else plain))
    yield p.mlp, *linear
    if model.moe is not None:
        share = model.moe.experts_per_token / model.moe.num_experts
        yield p.experts * share, q.experts_bits_per_weight, q.experts


def floor_s(engine: ResolvedEngine, shape: Shape) -> float:
    """Seconds that ideal kernels, perfectly sharded, would need."""
    model, gpu, tp = engine.model, engine.gpu, engine.args.tensor_parallel_size
    tokens = shape.chunk + shape.decodes
    fp8_cache = engine.args.kv_cache_dtype.startswith("fp8")
    cache = "fp8" if fp8_cache else "bfloat16"
    compute_s = moved = 0.0
    for group in model.layers:
        for count, bits, dtype in weight_parts(model, group):
            form = executed_format(dtype, gpu)
            rate = roofline.peak_flop_s(gpu, form.compute)
            compute_s += group.count * 2.0 * count * tokens / rate
            moved += group.count * count * bits / 8
        flop, elements = attention_work(model, group, shape)
        compute_s += group.count * flop / roofline.peak_flop_s(gpu, cache)
        moved += group.count * elements * (1 if fp8_cache else 2)
    return max(compute_s, moved / gpu.hbm_bandwidth_bytes_s) / tp


def step_s(timer: StepTimer, shape: Shape) -> float:
    attention = timer.prefill_attention_s(shape.chunk, shape.prefix) if shape.chunk else 0.0
    return timer.step_s(
        shape.chunk + shape.decodes,
        shape.decodes + 1,
        attention,
        shape.decodes,
        shape.decodes * shape.context,
    )


@cache
def distinct_models() -> list[str]:
    """One name of each architecture: many checkpoints differ in nothing that takes time."""
    found: dict[LlmArchitecture, str] = {}
    for name in list_models():
        found.setdefault(replace(get_model(name), **TIMELESS), name)
    return list(found.values())


def engine_of(model: str, gpu: str) -> ResolvedEngine:
    """One engine of the rotation of backends, degrees of parallelism and formats."""
    turn = list_gpus().index(gpu)
    formats = FORMATS[turn % len(FORMATS)]
    plain = get_model(model).quantization.method == NO_QUANTIZATION
    quantization = "fp8" if plain and formats in ("fp8 weights", "both") else None
    return resolve_engine(
        EngineArgs(
            model=model,
            gpu=gpu,
            backend=BACKENDS[turn % len(BACKENDS)],
            tensor_parallel_size=DEGREES[turn % len(DEGREES)],
            quantization=quantization,
            kv_cache_dtype="fp8" if formats in ("fp8 cache", "both") else "auto",
            max_num_batched_tokens=7168,
            max_num_seqs=256,
        )
    )


@pytest.fixture
def short_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices up to the tokens asked for only: thousands of engines share no longer columns."""
    monkeypatch.setattr(columns, "COLUMN_STEP", 1024)


@pytest.mark.usefixtures("short_columns")
@pytest.mark.parametrize("gpu", list_gpus())
def test_no_model_of_the_catalogue_beats_the_hardware(gpu: str) -> None:
    faster = []
    for model in distinct_models():
        engine = engine_of(model, gpu)
        timer = StepTimer.compile(engine)
        for shape in SHAPES:
            took, least = step_s(timer, shape), floor_s(engine, shape)
            if took < least * (1 - 1e-9):
                faster.append(f"{engine.args}: {shape} takes {took / least:.3f} of the least time")
    assert not faster, "\n".join(faster[:5])


def llama_8b(gpu: str) -> ResolvedEngine:
    model = "meta-llama/Llama-3.1-8B-Instruct"
    return resolve_engine(EngineArgs(model=model, gpu=gpu, max_num_batched_tokens=8192))


def test_a_7000_token_prompt_needs_no_more_than_an_a100_has() -> None:
    # A popular simulator's default model (Llama 3.1 8B) does this at 1.37 PFLOP/s.
    engine = llama_8b("a100_sxm")
    shape = Shape(chunk=7000)
    peak = get_gpu("a100_sxm").peak("bfloat16")
    used = floor_s(engine, shape) / step_s(StepTimer.compile(engine), shape)
    assert peak == 312e12
    assert 0.5 < used < 0.9


def test_a_prompt_that_is_all_cached_but_one_block_still_reads_its_context() -> None:
    engine = llama_8b("h100_sxm")
    shape = Shape(chunk=16, prefix=100_000)
    assert step_s(StepTimer.compile(engine), shape) > 100_000 * 131_072 / 3.35e12
