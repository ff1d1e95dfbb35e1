"""Interpolation: the table on its grid, lines between, held utilisation beyond."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.timing.chain import timing_source
from dynosim.hardware_models.timing.decode_grid import FAR_TOKENS, DecodeGrid
from dynosim.hardware_models.timing.gemm_sites import GemmSites
from dynosim.hardware_models.timing.interpolate import (
    FloatArray,
    held_line,
    lower_envelope,
    nearest_sites,
)
from dynosim.hardware_models.timing.prefill_curve import PrefillCurve, pairs
from dynosim.hardware_models.timing.shapes import AttentionShape
from dynosim.hardware_models.timing.tables import load_table


def memory_roof(n: FloatArray, c: FloatArray) -> FloatArray:
    """A byte per sequence and token of context, a million bytes a second."""
    return n * c * 1e-6


def gemm_roof(m: FloatArray, n: float, k: float) -> FloatArray:
    return np.maximum(2 * m * n * k / 1e12, (m * k + n * k + m * n) * 2 / 1e10)


class TestHeldLine:
    xs, ys = np.array([1.0, 10.0, 20.0]), np.array([5.0, 5.0, 9.0])

    def line(self, *x: float) -> list[float]:
        seconds = held_line(np.array(x), self.xs, self.ys, lambda x: x * 0.1)
        return [float(s) for s in seconds]

    def test_equals_the_points_and_is_linear_between(self) -> None:
        assert self.line(1, 10, 20, 15) == [5.0, 5.0, 9.0, 7.0]

    def test_holds_the_last_utilisation_beyond_the_grid(self) -> None:
        # roofline 2 s of 9 s at the boundary; at 40 the roofline is 4 s.
        assert self.line(40) == [pytest.approx(18.0)]

    def test_holds_the_first_latency_below_the_grid(self) -> None:
        assert self.line(0.5) == [5.0]


class TestNearestSites:
    def test_a_measured_site_answers_alone(self) -> None:
        sites = np.array([[2.0, 2.0], [4.0, 4.0]])
        order, weight = nearest_sites(np.array([4.0, 4.0]), sites)
        assert order.tolist() == [1]
        assert weight.tolist() == [1.0]

    def test_weights_are_inverse_squared_octaves(self) -> None:
        # One octave to the left, two to the right: 1 and 1/4, normalised.
        order, weight = nearest_sites(np.array([8.0]), np.array([[4.0], [32.0]]))
        assert order.tolist() == [0, 1]
        assert weight == pytest.approx([0.8, 0.2])


class TestGemmSites:
    sites = GemmSites(
        np.array([[1024.0, 1024.0], [4096.0, 1024.0]]),
        (np.array([1.0, 64.0]),) * 2,
        (np.array([1e-3, 2e-3]), np.array([4e-3, 8e-3])),
    )

    def test_measured_site_is_linear_in_m(self) -> None:
        seconds = self.sites.seconds_at(np.array([1.0, 32.5, 64.0]), 4096, 1024, gemm_roof)
        assert seconds.tolist() == pytest.approx([4e-3, 6e-3, 8e-3])

    def test_unmeasured_site_has_the_mean_utilisation_of_its_neighbours(self) -> None:
        m = np.array([64.0])
        seconds = self.sites.seconds_at(m, 2048, 1024, gemm_roof)
        low, high = gemm_roof(m, 1024, 1024) / 2e-3, gemm_roof(m, 4096, 1024) / 8e-3
        assert gemm_roof(m, 2048, 1024) / seconds == pytest.approx((low + high) / 2)


class TestLowerEnvelope:
    def test_a_spike_is_taken_off_and_nothing_is_raised(self) -> None:
        assert lower_envelope(np.array([1.0, 9.0, 2.0, 3.0])).tolist() == [1.0, 2.0, 2.0, 3.0]

    @given(st.lists(st.lists(st.floats(0.1, 10), min_size=3, max_size=3), min_size=2, max_size=5))
    def test_rises_along_both_axes_and_never_exceeds(self, rows: list[list[float]]) -> None:
        raw = np.array(rows)
        low = lower_envelope(raw)
        assert (low <= raw).all()
        assert (np.diff(low, axis=0) >= 0).all()
        assert (np.diff(low, axis=1) >= 0).all()


class TestDecodeGrid:
    """Latency 10 + 2 x total context, measured up to a total of eight tokens."""

    batch, context = np.array([1.0, 2.0, 4.0, 8.0]), np.array([1.0, 2.0, 4.0, 8.0])

    def grid(self, noise: float = 0.0) -> DecodeGrid:
        total = self.batch[:, None] * self.context[None, :]
        measured = np.where(total <= 8, 10.0 + 2.0 * total, np.nan)
        measured[0, 2] += noise
        return DecodeGrid.of(self.batch, self.context, measured, memory_roof)

    def test_equals_the_measured_cells(self) -> None:
        grid = self.grid(noise=1.0)
        assert grid.at(1, 4) == pytest.approx(19.0)
        assert grid.at(2, 4) == pytest.approx(26.0)

    def test_is_bilinear_between(self) -> None:
        assert self.grid().at(3, 1.5) == pytest.approx(10 + 2 * 3 * 1.5)

    @pytest.mark.parametrize(("n", "c"), [(8, 8), (4, 4), (16, 2), (64, 8), (3, 7)])
    def test_continues_linearly_in_total_context_where_memory_ended_the_table(
        self, n: int, c: float
    ) -> None:
        assert self.grid().at(n, c) == pytest.approx(10 + 2 * n * c)

    def test_continues_beyond_the_longest_context(self) -> None:
        assert self.grid().at(1, 1000) == pytest.approx(10 + 2 * 1000)

    def test_continuation_never_falls_under_the_rooflines_slope(self) -> None:
        flat = np.full((2, 2), 5.0)
        grid = DecodeGrid.of(np.array([1.0, 2.0]), np.array([1.0, 2.0]), flat, memory_roof)
        step = grid.at(1, FAR_TOKENS) - grid.at(1, 2.0)
        assert step == pytest.approx((FAR_TOKENS - 2) * 1e-6)

    def test_a_window_stops_the_growth(self) -> None:
        windowed = self.grid().clamped(3)
        assert windowed.at(2, 3) == pytest.approx(self.grid().at(2, 3))
        assert windowed.at(2, 3000) == windowed.at(2, 3)

    @given(st.integers(1, 40), st.integers(1, 40), st.floats(1, 60), st.floats(1, 60))
    def test_more_is_never_cheaper(self, n: int, more: int, c: float, longer: float) -> None:
        grid = self.grid(noise=7.0).monotone()
        assert grid.at(n + more, c + longer) >= grid.at(n, c) - 1e-9


class TestPrefillCurve:
    tokens, seconds = np.array([1.0, 100.0, 200.0]), np.array([1.0, 4.0, 9.0])
    curve = PrefillCurve.of(tokens, seconds)

    def test_a_launch_and_what_a_chunk_adds_are_the_measured_lengths(self) -> None:
        launch_s = self.curve.launch_s
        assert launch_s == 1.0
        assert [launch_s + self.curve.seconds(t, 0) for t in (1, 100, 200)] == pytest.approx(
            [1, 4, 9]
        )

    def test_is_linear_in_the_root_between(self) -> None:
        assert self.curve.seconds(150, 0) == pytest.approx(((3**0.5 + 8**0.5) / 2) ** 2)

    def test_grows_with_the_square_beyond(self) -> None:
        assert 1 + self.curve.seconds(400, 0) == pytest.approx(4 * 9)

    def test_a_prefix_costs_the_chunks_share_of_pairs(self) -> None:
        # 100 after 100: 100 x (100 + 50) of 200 x 100 pairs.
        assert self.curve.seconds(100, 100) == pytest.approx(8 * 0.75)

    def test_never_less_than_the_chunk_alone(self) -> None:
        assert self.curve.seconds(100, 1) >= self.curve.seconds(100, 0)

    def test_a_measured_block_adds_only_the_cross_term(self) -> None:
        # Projections are linear in the chunk: whole - prefix.
        assert self.curve.as_block().seconds(100, 100) == pytest.approx(9 - 4)

    def test_a_window_bounds_the_keys_each_query_sees(self) -> None:
        assert pairs(10, 0, window=4) == 0.5 * 16 + 4 * 6
        assert pairs(10, 100, window=4) == 40

    def test_chunks_of_a_prompt_together_attend_to_all_its_pairs(self) -> None:
        whole = pairs(1000, 0, None)
        assert sum(pairs(250, p, None) for p in (0, 250, 500, 750)) == whole
        assert sum(pairs(250, p, 300) for p in (0, 250, 500, 750)) == pairs(1000, 0, 300)


@pytest.mark.parametrize(
    ("gpu", "backend", "dtype"),
    [
        ("h200_sxm", "vllm", "bfloat16"),
        ("b200_sxm", "trtllm", "nvfp4"),
        ("a100_sxm", "sglang", "bfloat16"),
    ],
)
def test_shipped_gemm_tables_answer_their_own_rows(gpu: str, backend: str, dtype: str) -> None:
    rows = load_table(gpu, backend, "gemm").select(gemm_dtype=dtype)
    columns = [rows.column(key) for key in ("m", "n", "k")]
    source = timing_source(get_gpu(gpu), backend)
    for i in np.random.default_rng(1).integers(0, len(rows), 60).tolist():
        m, n, k = (int(c[i]) for c in columns)
        priced = source.gemm_s(np.array([float(m)]), n, k, dtype)
        assert priced.value[0] == pytest.approx(rows.latency_s[i], rel=1e-12)


@pytest.mark.parametrize(("gpu", "backend"), [("h200_sxm", "vllm"), ("l40s", "trtllm")])
def test_shipped_decode_tables_are_followed_but_for_their_spikes(gpu: str, backend: str) -> None:
    rows = load_table(gpu, backend, "generation_attention")
    rows = rows.select(attn_dtype="bfloat16", kv_cache_dtype="bfloat16", head_dim=128)
    rows = rows.select(window_size=0, num_heads=32, num_key_value_heads=8)
    shape = AttentionShape(heads=32, kv_heads=8, qk_dim=128, v_dim=128)
    grid = timing_source(get_gpu(gpu), backend).decode_attention(shape).value
    batch, context = rows.column("batch_size"), rows.column("kv_tokens")
    mine = [grid.at(int(b), int(c)) for b, c in zip(batch, context, strict=True)]
    ratio = np.array(mine) / rows.latency_s
    assert ratio.max() <= 1 + 1e-9
    assert np.quantile(ratio, 0.1) >= 0.95


class TestColdWeights:
    """Weights read from memory, whatever the L2 cache held while they were measured."""

    # Of a memory of 100 bytes a second and an L2 of 40: weights of 10, 80 and 200 bytes.
    sites = np.array([[10.0, 1.0], [80.0, 1.0], [200.0, 1.0]])
    m = (np.array([1.0, 64.0]),) * 3

    def measured(self, warm_s: float) -> GemmSites:
        seconds = ([warm_s, 1.0], [1.0, 1.1], [2.5, 2.6])
        return GemmSites(self.sites, self.m, tuple(np.array(s) for s in seconds))

    def test_a_warm_weight_takes_a_launch_and_the_rate_of_large_ones(self) -> None:
        # 10 bytes in 0.05 s are 200 a second: twice what the memory reads. Large ones read 80.
        cold = self.measured(0.05).cold(1.0, 40.0, 100.0)
        assert cold.seconds[0] == pytest.approx([0.05 + 10 / 80, 1.0])
        assert cold.seconds[1].tolist() == [1.0, 1.1]

    def test_a_table_that_no_cache_shows_in_stays(self) -> None:
        measured = self.measured(0.2)
        assert measured.cold(1.0, 40.0, 100.0) is measured

    def test_no_shipped_weight_of_l40s_is_read_faster_than_its_memory(self) -> None:
        source = timing_source(get_gpu("l40s"), "trtllm")
        for n, k in [(4096, 4096), (8192, 2048), (1024, 8192)]:
            seconds = source.gemm_s(np.array([1.0]), n, k, "bfloat16").value[0]
            assert 2.0 * n * k / seconds < 0.9 * 0.864e12


def test_prompts_of_one_step_share_a_launch() -> None:
    # Measured, H100, TensorRT-LLM, 32 heads over 8 KV heads: 16.2 us for one prompt of 128 tokens,
    # 335 us for 128 of them.
    shape = AttentionShape(heads=32, kv_heads=8, qk_dim=128, v_dim=128)
    curve = timing_source(get_gpu("h100_sxm"), "trtllm").prefill_attention(shape).value
    one, many = (curve.launch_s + n * curve.seconds(128, 0) for n in (1, 128))
    assert one == pytest.approx(16.2e-6, rel=0.01)
    assert many == pytest.approx(335e-6, rel=0.2)
