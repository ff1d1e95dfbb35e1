"""CUDA graphs: the sizes captured, what padding and eager launches do to a step."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.memory.plan import plan_memory
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing.graphs import Graphs, graphs_of, sizes
from dynosim.hardware_models.timing.pricing import price
from dynosim.hardware_models.timing.step_timer import StepTimer

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SMALL = "Qwen/Qwen2.5-0.5B-Instruct"
CARDS_ALONE = "none"
"""No calibration: the times of launches are those that the backends' cards say."""


@cache
def engine(model: str = LLAMA, **args: Any) -> ResolvedEngine:
    given = {"model": model, "gpu": "h100_sxm", "calibration": CARDS_ALONE} | args
    return resolve_engine(EngineArgs(**given))


@cache
def timer(model: str = LLAMA, **args: Any) -> StepTimer:
    return StepTimer.compile(engine(model, **args))


def decode_s(t: StepTimer, n: int, mean: int = 500) -> float:
    return t.step_s(n, n, 0.0, n, n * mean)


class TestSizes:
    def test_by_hand(self) -> None:
        assert sizes(((1, 1), (2, 2), (4, 4), (8, 8)), 40) == (1, 2, 4, 8, 16, 24, 32, 40)
        assert sizes(((1, 1), (4, 4), (16, 8)), 15) == (1, 2, 3, 4, 8, 12)
        assert sizes((), 512) == ()

    def test_vllm_by_version(self) -> None:
        old = graphs_of(engine(backend_version="0.11.0"))[0].sizes
        new = graphs_of(engine(backend_version="0.19.0"))[0].sizes
        assert old == (1, 2, 4, *range(8, 513, 8))
        assert new == (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))

    def test_twice_the_sequences_and_never_more_than_the_budget(self) -> None:
        assert graphs_of(engine(max_num_seqs=20))[0].largest == 40
        assert graphs_of(engine(max_num_batched_tokens=100, max_num_seqs=100))[0].largest == 96

    def test_a_step_runs_at_the_next_size(self) -> None:
        graphs = Graphs((1, 2, 4, 8), launch_s=7.0)
        assert graphs.run_tokens(12).tolist() == [0, 1, 2, 4, 4, 8, 8, 8, 8, 9, 10, 11]
        assert graphs.least_s(12).tolist() == [0.0] * 9 + [7.0] * 3

    def test_without_padding_only_a_step_of_a_captured_size_replays_one(self) -> None:
        graphs = Graphs((1, 2, 4, 8), launch_s=7.0, is_padded=False)
        assert graphs.run_tokens(6).tolist() == [0, 1, 2, 3, 4, 5]
        assert graphs.least_s(6).tolist() == [0.0, 0.0, 0.0, 7.0, 0.0, 7.0]

    def test_without_known_sizes_nothing_is_padded(self) -> None:
        assert Graphs((), launch_s=0.0).run_tokens(4).tolist() == [0, 1, 2, 3]


class TestPadding:
    def test_linear_ops_cost_what_they_cost_at_the_captured_size(self) -> None:
        t, token_s = timer(), price(engine()).token_s
        linear = [t.step_s(n, 1, 0.0, 0, 0) for n in (9, 15, 16, 17, 24, 500, 513)]
        logits = linear[2] - token_s[16]
        expected = token_s[[16, 16, 16, 24, 24, 512, 513]] + logits
        assert linear == pytest.approx(expected.tolist(), rel=1e-12)

    def test_one_sequence_more_than_a_size_costs_a_jump(self) -> None:
        # Llama 3.1 8B is bound by arithmetic at 256 tokens and beyond.
        t = timer()
        jump, step = decode_s(t, 257) - decode_s(t, 256), decode_s(t, 271) - decode_s(t, 270)
        assert jump > 5 * step > 0.0

    def test_attention_is_not_padded(self) -> None:
        t = timer()
        assert decode_s(t, 10, 4000) < decode_s(t, 15, 4000)

    def test_steps_with_prefill_are_padded_too(self) -> None:
        t, token_s = timer(), price(engine()).token_s
        chunk_s = t.prefill_attention_s(120, 0)
        alone = t.step_s(130, 11, 0.0, 0, 0)
        mixed = t.step_s(130, 11, chunk_s, 10, 10 * 500)
        assert alone - token_s[136] == pytest.approx(t.step_s(136, 11, 0.0, 0, 0) - token_s[136])
        assert mixed > alone + chunk_s

    def test_backends_whose_sizes_are_not_known_run_as_they_come(self) -> None:
        t, token_s = timer(backend="static"), price(engine(backend="static")).token_s
        linear = np.array([t.step_s(n, 1, 0.0, 0, 0) for n in (9, 15)])
        assert np.diff(linear) == pytest.approx(token_s[15] - token_s[9], abs=1e-12)


class TestOtherBackends:
    def test_sglang_captures_by_memory_and_by_shards(self) -> None:
        def largest(gpu: str, tp: int) -> int:
            return graphs_of(engine(gpu=gpu, backend="sglang", tensor_parallel_size=tp))[0].largest

        assert [largest(gpu, 1) for gpu in ("l4", "l40s", "h100_sxm", "b200_sxm")] == [
            *(24, 32, 256, 512)
        ]
        assert [largest(gpu, 4) for gpu in ("l4", "l40s", "h100_sxm", "b200_sxm")] == [
            *(80, 160, 512, 512)
        ]

    def test_sglang_captures_prefill_batches_in_sizes_of_their_own(self) -> None:
        decode, prefill = graphs_of(engine(backend="sglang"))
        assert decode.sizes == (1, 2, 4, 8, 12, *range(16, 257, 8))
        assert prefill.sizes[:9] == (4, 8, 12, 16, 20, 24, 28, 32, 48)
        assert prefill.sizes[-2:] == (7680, 8192)
        assert len(prefill.sizes) == 58, "as its own list of sizes up to 8192"
        stages = engine(backend="sglang", pipeline_parallel_size=2)
        assert graphs_of(stages)[1].sizes == ()

    def test_trtllm_replays_only_exact_sizes_unless_told_to_pad(self) -> None:
        exact, prefill = graphs_of(engine(backend="trtllm"))
        assert (exact.sizes, exact.is_padded) == ((*range(1, 33), 64, 128), False)
        assert prefill.sizes == ()
        padded = graphs_of(engine(backend="trtllm", cuda_graph_padding=True))[0]
        assert (padded.sizes, padded.is_padded) == ((1, 2, 4, *range(8, 129, 8)), True)

    def test_padding_pays_between_two_sizes_and_costs_nothing_at_one(self) -> None:
        exact = timer(SMALL, backend="trtllm")
        padded = timer(SMALL, backend="trtllm", cuda_graph_padding=True)
        assert decode_s(padded, 40) < 0.5 * decode_s(exact, 40)
        assert decode_s(padded, 32) == decode_s(exact, 32)
        assert decode_s(padded, 129) == decode_s(exact, 129) >= 24 * 260e-6

    def test_trtllm_launches_every_prefill_and_sglang_none_that_fits(self) -> None:
        short = [timer(SMALL, backend=b).step_s(20, 1, 0.0, 0, 0) for b in ("trtllm", "sglang")]
        assert short[0] == pytest.approx(24 * 260e-6)
        assert short[1] < short[0]

    def test_only_some_backends_can_do_without_padding(self) -> None:
        assert graphs_of(engine(backend="sglang", cuda_graph_padding=False))[0].sizes == (
            *range(1, 257),
        )
        with pytest.raises(UserError, match="cuda_graph_padding: vllm always pads"):
            graphs_of(engine(cuda_graph_padding=False))

    def test_static_batches_are_eager_whatever_is_said(self) -> None:
        plain, eager = (timer(backend="static", enforce_eager=e) for e in (False, True))
        assert decode_s(plain, 8) == decode_s(eager, 8)


class TestEager:
    def test_a_small_step_takes_the_time_to_launch_it(self) -> None:
        eager, graph = timer(SMALL, enforce_eager=True), timer(SMALL)
        assert decode_s(eager, 1) == pytest.approx(24 * 260e-6)
        assert decode_s(graph, 1) < 0.4 * decode_s(eager, 1)

    def test_the_gain_of_graphs_fades_with_the_batch(self) -> None:
        eager, graph = timer(enforce_eager=True), timer()
        gains = [decode_s(eager, n, 2000) / decode_s(graph, n, 2000) for n in (1, 16, 64, 256)]
        assert gains == sorted(gains, reverse=True)
        assert gains[0] > 1.2
        assert gains[-1] == pytest.approx(1.0, abs=0.02)

    def test_long_prefills_hide_their_launches(self) -> None:
        eager, graph = timer(enforce_eager=True), timer()
        step = (8192, 1, graph.prefill_attention_s(8192, 0), 0, 0)
        assert eager.step_s(*step) == graph.step_s(*step)

    def test_batches_are_not_padded(self) -> None:
        eager, token_s = timer(enforce_eager=True), price(engine()).token_s
        linear = [eager.step_s(n, 1, 1.0, 0, 0) for n in (2049, 2056)]
        assert linear[1] - linear[0] == pytest.approx(token_s[2056] - token_s[2049], abs=1e-12)

    def test_beyond_the_largest_graph_steps_are_launched_eagerly(self) -> None:
        t = timer(SMALL)
        assert t.step_s(512, 1, 0.0, 0, 0) < 24 * 260e-6
        assert t.step_s(513, 1, 0.0, 0, 0) == pytest.approx(24 * 260e-6)

    def test_graphs_leave_their_memory_to_the_cache(self) -> None:
        plain, eager = (plan_memory(engine(enforce_eager=e)) for e in (False, True))
        assert eager.cuda_graph_bytes == 0
        assert eager.kv_cache_bytes - plain.kv_cache_bytes == plain.cuda_graph_bytes > 0

    def test_a_backend_without_launch_times_says_so(self) -> None:
        known = engine(backend="trtllm", enforce_eager=True)
        unknown = replace(known, backend=known.backend.with_figures({"eager_layer_s": None}))
        with pytest.raises(UserError, match="enforce_eager: no launch times of trtllm"):
            StepTimer.compile(unknown)


@pytest.mark.parametrize("version", ["0.11.0", "0.24.0"])
@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("model", [SMALL, LLAMA])
@given(n=st.integers(1, 700), mean=st.integers(1, 20_000), data=st.data())
@settings(max_examples=20, deadline=None)
def test_a_decode_line_is_the_step_itself(
    model: str, eager: bool, version: str, n: int, mean: int, data: Any
) -> None:
    # Synchronous and asynchronous scheduling, below and above the largest graph.
    t = timer(model, enforce_eager=eager, backend_version=version)
    seconds, slope, limit = t.decode_line(n, n * mean)
    assert limit >= n * mean
    total = data.draw(st.integers(n * mean, int(min(limit, n * mean + 10_000_000))))
    for at in (n * mean, total):
        along = seconds + slope * (at - n * mean)
        assert along == pytest.approx(t.step_s(n, n, 0.0, n, at), rel=1e-12, abs=1e-12)
