"""Mixed steps of a whole engine: where the tiles come from and what they do to a step."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing.mixed import MixedTiles, mixed_tiles
from dynosim.hardware_models.timing.pricing import price
from dynosim.hardware_models.timing.source import OpSource
from dynosim.hardware_models.timing.step_timer import StepTimer

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
RTX_PRO = "rtx_pro_6000_server"


@cache
def engine(model: str = LLAMA, gpu: str = RTX_PRO, **args: Any) -> ResolvedEngine:
    # How parts meet in a step, without a fitted factor on the sum.
    return resolve_engine(EngineArgs(model=model, gpu=gpu, calibration="none", **args))


@cache
def timer(model: str = LLAMA, gpu: str = RTX_PRO, **args: Any) -> StepTimer:
    return StepTimer.compile(engine(model, gpu, **args))


def tiles(*names: str, **args: Any) -> MixedTiles | None:
    return price(engine(*names, **args)).attention.tiles


def mixed_source(*names: str, **args: Any) -> OpSource:
    (found,) = (s for s in timer(*names, **args).sources if s.name == "mixed attention")
    return found


def excess_s(t: StepTimer, n: int, mean: int, chunk: int, prefix: int = 0) -> float:
    """Attention of a mixed step beyond what prefill and decode take alone, in seconds."""
    attention = t.prefill_attention_s(chunk, prefix)
    mixed = t.step_s(n + chunk, n, attention, n, n * mean)
    # A step without decodes launches the prefill kernel, whatever its chunks add to that.
    linear = t.step_s(n + chunk, n, 0.0, 0, 0)
    return mixed - linear - attention - decode_s(t, n, mean)


def decode_s(t: StepTimer, n: int, mean: int) -> float:
    """Decode attention alone, in seconds."""
    knots, seconds, _ = t._rows[n]
    return float(np.interp(n * mean, knots, seconds))


class TestTiles:
    def test_the_recipe_by_hand(self) -> None:
        priced = price(engine(tensor_parallel_size=2))
        ((layers, curve),) = priced.attention.prefill
        expected = mixed_tiles(
            engine().gpu,
            "vllm",
            heads=16,
            kv_heads=4,
            head_dim=128,
            layers=32,
            prefill_s_per_pair=curve.seconds(2048, 16384) / (2048 * (16384 + 1024)),
        )
        assert layers == 32
        assert priced.attention.tiles == expected

    def test_layers_with_a_window_share_the_speed_of_those_without(self) -> None:
        found = tiles("google/gemma-3-27b-it", "a100_sxm")
        assert found is not None
        assert (found.window, found.windowed_share) == (1024.0, pytest.approx(52 / 62))

    def test_a_model_with_windows_only(self) -> None:
        found = tiles("mistralai/Mistral-7B-v0.1", "a100_sxm")
        assert found is not None
        assert (found.window, found.windowed_share) == (4096.0, 1.0)

    @pytest.mark.parametrize(
        ("model", "gpu", "backend", "kv_cache_dtype"),
        [
            (LLAMA, "h100_sxm", "vllm", "auto"),
            (LLAMA, "a100_sxm", "sglang", "auto"),
            (LLAMA, "l40s", "vllm", "fp8"),
            ("deepseek-ai/DeepSeek-V2-Lite", "a100_sxm", "vllm", "auto"),
        ],
    )
    def test_other_kernels_add_up(
        self, model: str, gpu: str, backend: str, kv_cache_dtype: str
    ) -> None:
        args = {"backend": backend, "kv_cache_dtype": kv_cache_dtype}
        assert tiles(model, gpu, **args) is None
        excess = excess_s(timer(model, gpu, **args), 64, 4000, 512)
        assert excess == pytest.approx(0.0, abs=1e-12)


class TestSteps:
    def test_long_contexts_beside_a_chunk_cost_more_than_apart(self) -> None:
        # Measured there: over 64k tokens of decode context the sum is 2.3 times too low (median).
        t = timer()
        assert excess_s(t, 64, 4000, 512) > 0.5 * decode_s(t, 64, 4000)

    def test_a_lone_short_decode_hides_beside_the_chunk(self) -> None:
        assert excess_s(timer(), 1, 64, 64) < 0.0

    @given(st.integers(1, 200), st.integers(1, 8000), st.integers(1, 2000), st.integers(0, 30_000))
    @settings(max_examples=60, deadline=None)
    def test_never_cheaper_than_either_part_alone(
        self, n: int, mean: int, chunk: int, prefix: int
    ) -> None:
        t = timer()
        attention = t.prefill_attention_s(chunk, prefix)
        mixed = t.step_s(n + chunk, n, attention, n, n * mean)
        alone = t.step_s(n + chunk, n, attention, 0, 0)
        assert mixed >= alone
        assert mixed >= t.step_s(n + chunk, n, 0.0, n, n * mean)

    def test_states_of_linear_attention_stay_outside(self) -> None:
        # With states of any size, a step grows by those states and by nothing else.
        hybrid = engine("Qwen/Qwen3-Next-80B-A3B-Instruct", tensor_parallel_size=4)
        state = hybrid.model.linear_state
        assert state is not None
        large = replace(hybrid.model, linear_state=replace(state, state_elements=10**8))
        plain, heavy = StepTimer.compile(hybrid), StepTimer.compile(replace(hybrid, model=large))
        excess = [excess_s(t, 32, 4000, 512) for t in (plain, heavy)]
        assert excess[0] > 0.0
        assert excess[1] == pytest.approx(excess[0], rel=1e-6)


class TestSources:
    def test_the_gpus_whose_mixed_batches_were_measured(self) -> None:
        source = mixed_source()
        assert source.source == "measured"
        assert "vLLM 0.19.0" in source.detail

    def test_other_gpus_with_the_same_kernel(self) -> None:
        assert mixed_source(LLAMA, "a100_sxm").source == "transferred"

    def test_parts_of_one_kernel_that_nobody_measured_mixed_are_an_assumption(self) -> None:
        source = mixed_source(LLAMA, "h100_sxm")
        assert source.source == "transferred"
        assert "assumed" in source.detail

    def test_parts_that_are_launched_apart_rest_on_what_the_parts_rest_on(self) -> None:
        apart = mixed_source(LLAMA, "h100_sxm", backend="trtllm")
        assert apart.source == "measured"
        assert "assumed" not in apart.detail
        assert mixed_source(LLAMA, "h100_nvl").source == "transferred"
