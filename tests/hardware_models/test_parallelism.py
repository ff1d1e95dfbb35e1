"""Pipeline stages, tensor-parallel groups over NVLink and PCIe, experts spread over GPUs."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing.graphs import graphs_of
from dynosim.hardware_models.timing.ops import Experts, decompose
from dynosim.hardware_models.timing.pipeline import PipelinedStepTimer
from dynosim.hardware_models.timing.pricing import price
from dynosim.hardware_models.timing.source import OpSource
from dynosim.hardware_models.timing.step_timer import StepTimer

LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"
QWEN_7B = "Qwen/Qwen2-7B-Instruct"
SMALL = "Qwen/Qwen2.5-0.5B-Instruct"
QWEN_MOE = "Qwen/Qwen3-235B-A22B"
few = settings(max_examples=60, deadline=None)


@cache
def engine(model: str, gpu: str, **args: Any) -> ResolvedEngine:
    return resolve_engine(EngineArgs(model=model, gpu=gpu, **{"max_num_seqs": 512} | args))


@cache
def timer(model: str, gpu: str, **args: Any) -> StepTimer:
    return StepTimer.compile(engine(model, gpu, **args))


def decode_s(t: StepTimer, n: int, mean: int = 2000) -> float:
    return t.step_s(n, n, 0.0, n, n * mean)


def prefill_s(t: StepTimer, tokens: int) -> float:
    return t.step_s(tokens, 1, t.prefill_attention_s(tokens, 0), 0, 0)


class TestPipeline:
    @staticmethod
    def stages(number: int, **args: Any) -> StepTimer:
        return timer(QWEN_7B, "a100_sxm", pipeline_parallel_size=number, **args)

    def test_a_lone_sequence_passes_all_stages_and_the_links_between(self) -> None:
        one, eight = self.stages(1), self.stages(8)
        hop = 10e-6 + 3584 * 2 / 300e9
        assert decode_s(eight, 1) - decode_s(one, 1) == pytest.approx(7 * hop, rel=1e-6)

    def test_it_takes_as_many_batches_as_stages_to_keep_them_busy(self) -> None:
        # vllm 7202: PP8 and few requests keep one or two GPUs busy. Up to eight sequences each
        # rides in a batch of its own: a round takes no longer, so tokens per second grow with them.
        eight = self.stages(8)
        alone = decode_s(eight, 1)
        for n in range(2, 8):
            assert decode_s(eight, n) == pytest.approx(alone, rel=1e-3)
        assert decode_s(eight, 8) < 1.35 * alone

    def test_busy_stages_multiply_throughput_not_speed(self) -> None:
        # 256 long sequences: bound by their caches, of which each batch reads its share.
        one, four = self.stages(1), self.stages(4)
        assert decode_s(four, 256, 4000) < 0.5 * decode_s(one, 256, 4000)
        assert decode_s(four, 1) > decode_s(one, 1)

    def test_weights_are_read_once_per_batch_whatever_it_holds(self) -> None:
        assert decode_s(self.stages(4), 16, 100) > 0.9 * decode_s(self.stages(1), 16, 100)

    def test_four_even_stages_by_hand(self) -> None:
        # 28 layers: 7 a stage; 40 sequences: 10 a batch, run as graphs of 16. The last stage also
        # has the head, and four batches pass it.
        of = engine(QWEN_7B, "a100_sxm", pipeline_parallel_size=4)
        priced = price(of)
        assert graphs_of(of)[0].sizes[:5] == (1, 2, 4, 8, 16)
        knots, seconds, slopes = priced.attention.decode[10]
        attention = seconds[0] + sum(
            slope * (min(10_000.0, high) - low)
            for low, high, slope in zip(knots, [*knots[1:], 1e9], slopes, strict=True)
            if low < 10_000.0
        )
        layers = priced.token_s[16] + attention
        assert self.stages(4).step_s(40, 40, 0.0, 40, 40_000) == pytest.approx(
            layers + 4 * priced.logit_s[10], rel=1e-9
        )

    def test_the_longest_stage_sets_the_pace_where_layers_do_not_divide(self) -> None:
        # 28 layers over 8 stages: four have 4 layers, not 3.5, and the head sits in a short one.
        t = self.stages(8)
        batch = price(engine(QWEN_7B, "a100_sxm", pipeline_parallel_size=8))
        layers = batch.token_s[1] + batch.attention.decode[1].seconds[0]
        expected = layers * 32 / 28 + batch.logit_s[1]
        assert t.step_s(8, 8, 0.0, 8, 0) == pytest.approx(expected, rel=1e-6)

    def test_a_chunk_goes_through_as_one_batch(self) -> None:
        one, four = self.stages(1), self.stages(4)
        assert prefill_s(four, 2048) == pytest.approx(prefill_s(one, 2048), rel=0.01)

    def test_each_batch_is_scheduled_by_itself(self) -> None:
        sync = {"backend_version": "0.11.0"}
        host = engine(QWEN_7B, "a100_sxm", **sync).backend.host_step_s
        gpu_only = decode_s(self.stages(4), 40)
        spent = decode_s(self.stages(4, **sync), 40)
        assert spent > gpu_only + 4 * host

    @given(st.sampled_from([2, 3, 8]), st.integers(1, 300), st.integers(1, 9000), st.data())
    @few
    def test_a_decode_line_is_the_step_itself(
        self, stages: int, n: int, mean: int, data: Any
    ) -> None:
        t = self.stages(stages)
        assert isinstance(t, PipelinedStepTimer)
        seconds, slope, limit = t.decode_line(n, n * mean)
        assert limit >= n * mean
        at = data.draw(st.integers(n * mean, int(min(limit, n * mean + 10_000_000))))
        along = seconds + slope * (at - n * mean)
        assert along == pytest.approx(t.step_s(n, n, 0.0, n, at), rel=1e-9)

    @given(st.integers(1, 200), st.integers(1, 5000), st.integers(1, 2000))
    @few
    def test_prefill_is_never_free(self, n: int, mean: int, chunk: int) -> None:
        t = self.stages(4)
        mixed = t.step_s(n + chunk, n + 1, t.prefill_attention_s(chunk, 0), n, n * mean)
        assert mixed >= decode_s(t, n, mean) * 0.93


class TestTensorParallelism:
    """vllm 732, 935, 689, 1873, 367, 1435; FastChat 2746; exllamav2 734."""

    @pytest.mark.parametrize(
        ("sxm", "pcie"), [("a100_sxm", "a100_pcie"), ("h100_sxm", "h100_pcie")]
    )
    def test_nvlink_scales_and_pcie_does_not(self, sxm: str, pcie: str) -> None:
        gains = []
        for gpu in (sxm, pcie):
            two, eight = (timer(LLAMA_70B, gpu, tensor_parallel_size=tp) for tp in (2, 8))
            gains.append(prefill_s(two, 2048) / prefill_s(eight, 2048))
        assert gains[0] > 2.4
        assert gains[1] < 1.0

    def test_70b_over_more_pcie_gpus_gains_almost_nothing(self) -> None:
        # TensorRT-LLM 0.9, Llama 2 70B in fp8 on L40S, a prompt of 2,048: 734, 673 and 704 ms over
        # 2, 4 and 8 GPUs. (The tables for 4 and 8 say 2 and 6 s: a host without direct paths.)
        two, four, eight = (timer(LLAMA_70B, "l40s", tensor_parallel_size=tp) for tp in (2, 4, 8))
        assert prefill_s(four, 2048) == pytest.approx(prefill_s(two, 2048), rel=0.4)
        assert prefill_s(eight, 2048) == pytest.approx(prefill_s(four, 2048), rel=0.25)

    def test_bridges_do_not_reach_beyond_a_pair(self) -> None:
        # H100 NVL: falcon-180B prefills in 2.89 s over 4 GPUs and in 3.56 s over 8.
        two, four = (timer(LLAMA_70B, "h100_nvl", tensor_parallel_size=tp) for tp in (2, 4))
        assert prefill_s(four, 8192) > 0.8 * prefill_s(two, 8192)

    @pytest.mark.parametrize("gpu", ["a100_sxm", "h100_sxm"])
    def test_a_small_model_gains_little_over_nvlink(self, gpu: str) -> None:
        one, two, eight = (timer(SMALL, gpu, tensor_parallel_size=tp) for tp in (1, 2, 8))
        assert decode_s(two, 32) > 0.8 * decode_s(one, 32)
        assert decode_s(eight, 32) > 0.7 * decode_s(one, 32)

    @pytest.mark.parametrize("gpu", ["a100_pcie", "l40s", "rtx_4090", "h100_pcie"])
    def test_a_small_model_loses_over_pcie(self, gpu: str) -> None:
        one, two, four = (timer(SMALL, gpu, tensor_parallel_size=tp) for tp in (1, 2, 4))
        assert decode_s(two, 64, 500) > decode_s(one, 64, 500)
        assert decode_s(four, 64, 500) > decode_s(one, 64, 500)
        assert prefill_s(four, 1024) > 0.9 * prefill_s(one, 1024)

    @pytest.mark.parametrize("gpu", ["a100_sxm", "h100_sxm", "l40s"])
    def test_doubling_the_gpus_of_gpt_oss_does_not_pay_for_one_user(self, gpu: str) -> None:
        # vllm 22331 saw 90 tokens a second on one A100 and 77 on two or four: a loss, with that
        # release's kernels. Ours gain, but tokens per GPU fall at every doubling.
        speed = [
            1 / decode_s(timer("openai/gpt-oss-120b", gpu, tensor_parallel_size=tp), 1) / tp
            for tp in (1, 2, 4)
        ]
        assert speed[1] < 0.87 * speed[0]
        assert speed[2] < 0.67 * speed[1]


class TestExperts:
    @staticmethod
    def source(load: str, gpu: str = "h200_sxm", **args: Any) -> OpSource:
        t = timer(QWEN_MOE, gpu, tensor_parallel_size=8, expert_distribution=load, **args)
        (found,) = (s for s in t.sources if s.name.startswith("moe"))
        return found

    def steps(self, load: str, ep: bool) -> tuple[float, float]:
        t = timer(
            QWEN_MOE,
            "h200_sxm",
            tensor_parallel_size=8,
            enable_expert_parallel=ep,
            expert_distribution=load,
        )
        return decode_s(t, 16), prefill_s(t, 8192)

    def test_the_choice_reaches_the_block(self) -> None:
        args = {"tensor_parallel_size": 8, "expert_distribution": "balanced"}
        ops = decompose(engine(QWEN_MOE, "h200_sxm", **args))
        (experts,) = (op for op in ops.tokens if isinstance(op, Experts))
        assert experts.block.load == "balanced"

    def test_skew_costs_most_where_whole_experts_sit_on_gpus(self) -> None:
        balanced, skewed = self.steps("balanced", ep=True), self.steps("power_law_1.2", ep=True)
        assert skewed[1] > 1.15 * balanced[1]
        sliced = self.steps("power_law_1.2", ep=False)[1] / self.steps("balanced", ep=False)[1]
        assert skewed[1] / balanced[1] > 1.05 * sliced

    def test_few_tokens_meet_fewer_experts_where_they_are_skewed(self) -> None:
        assert self.steps("power_law_1.2", ep=False)[0] < self.steps("balanced", ep=False)[0]

    def test_more_skew_is_slower_in_prefill(self) -> None:
        loads = ("balanced", "power_law_1.01", "power_law_1.2")
        seconds = [self.steps(load, ep=True)[1] for load in loads]
        assert seconds == sorted(seconds)

    def test_a_table_without_that_load_stands_in_with_the_nearest(self) -> None:
        assert "loaded" not in self.source("balanced").detail
        # TensorRT-LLM's tables on A100 hold skewed loads only.
        assert (
            "loaded power_law_1.01" in self.source("balanced", "a100_sxm", backend="trtllm").detail
        )
