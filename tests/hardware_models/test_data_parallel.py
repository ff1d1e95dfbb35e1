"""Data-parallel ranks that share experts: what their steps cost, and what memory they leave."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.memory.plan import MemoryPlan, plan_memory
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing import roofline
from dynosim.hardware_models.timing.all_to_all import exchange_s
from dynosim.hardware_models.timing.data_parallel import DataParallelTimer, RankRun
from dynosim.hardware_models.timing.exchange import Exchange, all2all_backend
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.hardware_models.timing.tables import load_table

DEEPSEEK = "deepseek-ai/DeepSeek-V3"
BACKENDS = ("vllm", "sglang", "trtllm")
TP8 = {"tensor_parallel_size": 8}
DP8 = {"data_parallel_size": 8, "enable_expert_parallel": True}


def engine(**args: Any) -> ResolvedEngine:
    base = {"model": DEEPSEEK, "gpu": "H200", "max_num_seqs": 2048, "max_model_len": 16384}
    return resolve_engine(EngineArgs(**{**base, **args}))


@lru_cache(maxsize=8)
def group_timer(backend: str, gpu: str = "H200") -> DataParallelTimer:
    return DataParallelTimer.compile(engine(backend=backend, gpu=gpu, **DP8))


def decodes(timer: DataParallelTimer, sequences: int, context: int) -> RankRun:
    """Returns what a rank with so many decoding sequences of equal context would do next."""
    own_s, slope_s, _ = timer.own.decode_line(sequences, sequences * context)
    return RankRun(sequences, sequences, own_s, slope_s * sequences, 1, True)


def group_s(timer: DataParallelTimer, batches: list[int], context: int = 4000) -> float:
    return timer.run([decodes(timer, n, context) for n in batches if n])[0]


def plan(**args: Any) -> MemoryPlan:
    return plan_memory(engine(**args))


# --- steps ------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    backend=st.sampled_from(BACKENDS),
    sequences=st.integers(1, 2048),
    context=st.integers(1, 8000),
)
def test_ranks_with_equal_batches_take_what_the_balanced_timer_says(
    backend: str, sequences: int, context: int
) -> None:
    alone = StepTimer.compile(engine(backend=backend, **DP8))
    one = alone.step_s(sequences, sequences, 0.0, sequences, sequences * context)
    together = group_s(group_timer(backend), [sequences] * 8, context)
    assert together == pytest.approx(one, rel=1e-9)


def test_ranks_with_equal_prompts_take_what_the_balanced_timer_says() -> None:
    alone, timer = StepTimer.compile(engine(**DP8)), group_timer("vllm")
    attention_s = timer.own.prefill_attention_s(2000, 0)
    own_s = timer.own.step_s(2000, 1, attention_s, 0, 0)
    together, _, steps = timer.run([RankRun(2000, 1, own_s, 0.0, 1, False)] * 8)
    assert together == pytest.approx(alone.step_s(2000, 1, attention_s, 0, 0), rel=1e-9)
    assert steps == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_skew_between_ranks_costs_time(backend: str) -> None:
    timer = group_timer(backend)
    even, skewed = group_s(timer, [64] * 8), group_s(timer, [288, *[32] * 7])
    assert skewed > 1.3 * even


@pytest.mark.parametrize("backend", BACKENDS)
def test_idle_ranks_still_pay(backend: str) -> None:
    # A graph's padding makes the dummy batches as large as the one that is real.
    timer = group_timer(backend)
    assert group_s(timer, [64]) == pytest.approx(group_s(timer, [64] * 8))
    # Without padding, dummy batches of one token are cheaper than real ones, and not free.
    prompt_s = timer.own.step_s(1024, 1, timer.own.prefill_attention_s(1024, 0), 0, 0)
    prompt = RankRun(1024, 1, prompt_s, 0.0, 1, False)
    one, all_ranks = timer.run([prompt])[0], timer.run([prompt] * 8)[0]
    lone = engine(backend=backend, enable_expert_parallel=True, **TP8)
    assert one < all_ranks
    assert group_s(timer, [1]) > StepTimer.compile(lone).step_s(1, 1, 0.0, 1, 4000)


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.tuples(st.integers(1, 300), st.integers(1, 9000)), min_size=1, max_size=8),
    steps=st.integers(2, 400),
)
def test_a_leap_of_the_group_is_its_steps(batches: list[tuple[int, int]], steps: int) -> None:
    timer = group_timer("vllm")
    lines = [timer.own.decode_line(n, n * context) for n, context in batches]

    def runs(at: int, steps: int) -> list[RankRun]:
        return [
            RankRun(n, n, own_s + slope * n * at, slope * n, steps, True)
            for (n, _), (own_s, slope, _) in zip(batches, lines, strict=True)
        ]

    first_s, growth_s, leapt = timer.run(runs(0, steps))
    assert 1 <= leapt <= steps
    for at in {0, leapt // 2, leapt - 1}:
        single_s, _, one = timer.run(runs(at, 1))
        assert one == 1
        assert first_s + growth_s * at == pytest.approx(single_s, rel=1e-9)


@pytest.mark.parametrize("gpu", ["H200", "B200"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_deepseek_gains_from_ranks_at_large_batches_and_loses_at_one(
    backend: str, gpu: str
) -> None:
    """SGLang v0.4 (2024-12-04) tells of up to 1.9 times the decode throughput."""
    tensor = StepTimer.compile(engine(backend=backend, gpu=gpu, **TP8))
    ranks = StepTimer.compile(engine(backend=backend, gpu=gpu, **DP8))
    gains = {}
    for batch in (1, 2048):
        own = -(-batch // 8)
        gains[batch] = tensor.step_s(batch, batch, 0.0, batch, batch * 4000) / ranks.step_s(
            own, own, 0.0, own, own * 4000
        )
    assert gains[1] < 0.75
    assert 1.6 < gains[2048] < 3.0


# --- exchanges --------------------------------------------------------------------------------

V3 = Exchange(
    count=1,
    kernel="allgather_reducescatter",
    ranks=8,
    gpus=8,
    hidden_size=7168,
    topk=8,
    num_experts=256,
    dtype="fp8_block",
)


def seconds(exchange: Exchange, tokens: list[float], gpu: str = "H200") -> list[float]:
    answer = exchange_s(get_gpu(gpu), "vllm", exchange, np.array(tokens, dtype=np.float64))
    return answer.value.tolist()


def test_gathering_is_nccls_all_gather_and_reduce_scatter() -> None:
    table = load_table("h200_sxm", "nccl", "nccl").select(nccl_dtype="half", num_gpus=8)
    size = 16 * 2**20
    expected = sum(
        float(table.select(op=op, message_bytes=size).latency_s[0])
        for op in ("all_gather", "reduce_scatter")
    )
    assert seconds(V3, [size / (7168 * 2)]) == pytest.approx([expected])


@pytest.mark.parametrize(
    ("kernel", "measured"),
    [("deepep_low_latency", "deepep_ll"), ("deepep_high_throughput", "deepep_ht")],
)
def test_deepep_is_its_dispatch_and_combine_at_a_gpus_tokens(kernel: Any, measured: str) -> None:
    table = load_table("h200_sxm", "vllm", "alltoall")
    rows = table.select(
        comm_backend=measured, hidden_size=7168, topk=8, num_experts=256, num_tokens=128
    )
    exchange = replace(V3, kernel=kernel)
    assert seconds(exchange, [8 * 128]) == pytest.approx([float(rows.latency_s.sum())])


@pytest.mark.parametrize("gpu", ["A100-SXM", "H100", "H200", "B200", "GB200", "L40S"])
@pytest.mark.parametrize("ranks", [2, 8, 16, 64])
def test_no_exchange_beats_its_links(gpu: str, ranks: int) -> None:
    found = get_gpu(gpu)
    tokens = np.array([1.0, 64.0, 4096.0, 65536.0])
    answer = exchange_s(found, "vllm", replace(V3, ranks=ranks, gpus=ranks), tokens)
    link = max(roofline.link_bytes_s(found, ranks), found.nvlink_bandwidth_bytes_s or 0.0)
    at_best = 2 * tokens * 7168 * 2 * (ranks - 1) / ranks / link
    assert (answer.value >= at_best).all()
    assert (np.diff(answer.value) > 0).all()


def test_low_latency_kernels_win_small_batches_and_gathering_loses_large_ones() -> None:
    low = replace(V3, kernel="deepep_low_latency")
    high = replace(V3, kernel="deepep_high_throughput")
    assert seconds(low, [256])[0] < seconds(high, [256])[0]
    assert seconds(high, [65536])[0] < seconds(low, [65536])[0]


@pytest.mark.parametrize(
    ("args", "kernel"),
    [
        ({"backend": "vllm"}, "allgather_reducescatter"),
        ({"backend": "sglang"}, "allgather_reducescatter"),
        ({"backend": "trtllm"}, "allgather_reducescatter"),
        ({"backend": "trtllm", "gpu": "GB200"}, "allgather_reducescatter"),
        ({"backend": "trtllm", "gpu": "GB200", "data_parallel_size": 16}, "nvlink_one_sided"),
        ({"backend": "vllm", "all2all_backend": "deepep_low_latency"}, "deepep_low_latency"),
    ],
)
def test_each_backend_has_its_own_exchange(args: dict[str, Any], kernel: str) -> None:
    assert all2all_backend(engine(**{**DP8, **args})) == kernel


@pytest.mark.parametrize("gpu", ["h200_sxm", "b200_sxm"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_skewed_experts_cost_more_than_even_ones(backend: str, gpu: str) -> None:
    times = [
        StepTimer.compile(engine(backend=backend, gpu=gpu, expert_distribution=load, **DP8)).step_s(
            512, 512, 0.0, 512, 512 * 1000
        )
        for load in ("balanced", "power_law_1.01", "power_law_1.2")
    ]
    assert times == sorted(times)
    assert times[0] < times[2]


# --- memory -----------------------------------------------------------------------------------


def test_ranks_of_a_latent_attention_model_hold_more_context() -> None:
    # Tensor parallelism copies the latent to every GPU; ranks keep different requests.
    tensor, ranks = plan(**TP8), plan(**DP8)
    assert tensor.kv_bytes_per_token == ranks.kv_bytes_per_token
    assert 8 * ranks.kv_cache_tokens > 3 * tensor.kv_cache_tokens
    assert f"{8 * ranks.kv_cache_tokens:,} KV tokens" in " ".join(ranks.notes)


def test_attention_is_copied_to_every_rank_and_experts_are_cut_over_all() -> None:
    model = engine().model
    experts = sum(g.count for g in model.layers if g.is_moe) * 256 * 3 * 7168 * 2048
    by_size = {dp: plan(data_parallel_size=dp).weights_bytes for dp in (1, 2, 4)}
    for dp in (2, 4):
        saved = experts * model.quantization.experts_bits_per_weight / 8 * (1 - 1 / dp)
        assert by_size[1] - by_size[dp] == pytest.approx(saved, rel=1e-6)
    # SGLang cuts its other MLPs over all ranks, too.
    vllm, sglang = plan(**DP8), plan(backend="sglang", **DP8)
    assert sglang.weights_bytes < vllm.weights_bytes


def test_a_rank_of_a_dense_model_is_a_replica() -> None:
    alone, ranked = (plan(model="Qwen/Qwen3-8B", data_parallel_size=dp) for dp in (1, 4))
    assert replace(ranked, notes=()) == alone
    assert engine(model="Qwen/Qwen3-8B", data_parallel_size=4).args.gpus_per_replica == 4


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({**DP8, "data_parallel_size": 3}, "3 GPUs do not divide 256 experts"),
        ({"data_parallel_size": 32}, "quantisation block"),
        ({"data_parallel_size": 3}, "do not divide experts of width 2048"),
        ({**DP8, "pipeline_parallel_size": 2}, "pipeline stages"),
        ({**DP8, "tensor_parallel_size": 3}, "does not divide 128 attention heads"),
        ({"data_parallel_size": 8, "all2all_backend": "deepep_low_latency"}, "expert_parallel"),
        ({**DP8, "all2all_backend": "nvlink_one_sided"}, "GB200"),
    ],
)
def test_what_cannot_run_is_told_in_words(args: dict[str, Any], reason: str) -> None:
    found = plan(**args)
    assert not found.feasible
    assert reason in found.reason


def test_sglang_splits_its_token_budget_over_the_ranks() -> None:
    budgets = {
        backend: engine(backend=backend, max_num_seqs=64, **DP8).args.max_num_batched_tokens
        for backend in ("vllm", "sglang")
    }
    alone = engine(backend="vllm", max_num_seqs=64).args.max_num_batched_tokens
    assert budgets == {"vllm": alone, "sglang": 8192 // 8}


# --- the table of docs/data-parallel.md ---------------------------------------------------------

DOCS = Path(__file__).resolve().parents[2] / "docs" / "data-parallel.md"
SHAPES = {"TP 8": TP8, "TP 8, EP": {**TP8, "enable_expert_parallel": True}, "DP 8, EP": DP8}
BATCHES = (1, 8, 32, 128, 512, 1024, 2048)


def table_rows() -> list[str]:
    """Returns output tokens per second of decode steps at 4,000 tokens of context a sequence."""
    rows = []
    for gpu, backend in product(("H200", "B200"), BACKENDS):
        for name, shape in SHAPES.items():
            timer = StepTimer.compile(engine(gpu=gpu, backend=backend, **shape))
            cells = [f"{_decode_tok_s(timer, batch, shape):,.0f}" for batch in BATCHES]
            rows.append(f"| {gpu} | {backend} | {name} | " + " | ".join(cells) + " |")
    return rows


def _decode_tok_s(timer: StepTimer, batch: int, shape: dict[str, Any]) -> float:
    own = -(-batch // shape.get("data_parallel_size", 1))
    return batch / timer.step_s(own, own, 0.0, own, own * 4000)


def test_the_documented_table_is_what_the_timer_says() -> None:
    begin, end = "<!-- table: begin -->\n", "<!-- table: end -->"
    before, _, rest = DOCS.read_text(encoding="utf-8").partition(begin)
    written, _, after = rest.partition(end)
    titles = ["GPU", "backend", "8 GPUs as", *(f"{batch:,}" for batch in BATCHES)]
    head = [f"| {' | '.join(titles)} |", f"|{'---|' * 3}{'--:|' * len(BATCHES)}"]
    table = "\n".join([*head, *table_rows()]) + "\n"
    if os.environ.get("DYNOSIM_UPDATE_GOLDEN"):
        DOCS.write_text(before + begin + table + end + after, encoding="utf-8")
    else:
        assert written == table, "run this test with DYNOSIM_UPDATE_GOLDEN=1"
