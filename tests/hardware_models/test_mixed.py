"""Attention of mixed batches: its laws, hand-computed waves, and its error on unseen grids."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.hardware_models.calibration.mixed_batch import errors, fitted, held_out
from dynosim.hardware_models.calibration.mixed_forms import ADDITIVE, TILES
from dynosim.hardware_models.calibration.mixed_grid import MixedGrid, read_mixed_grids
from dynosim.hardware_models.calibration.mixed_report import parameters_of
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu, list_gpus
from dynosim.hardware_models.timing.mixed import (
    GpuSlots,
    MixedTiles,
    TileCoefficients,
    coefficients,
    gpu_slots,
    mixed_attention_s,
    mixed_tiles,
    tiles_of,
    tiles_per_sm,
)

LLAMA_8B_ON_RTX_PRO = mixed_tiles(
    get_gpu("rtx_pro_6000_server"),
    "vllm",
    heads=32,
    kv_heads=8,
    head_dim=128,
    layers=32,
    prefill_s_per_pair=6e-11,
)
HUNDRED_SLOTS = GpuSlots(sms=100, shared_bytes=100 * 1024, l2_bytes=128 * 2**20)


def mixed(
    prefill_s: float,
    decode_s: float,
    num_decode: int,
    context: float,
    prefill_tokens: int,
    tiles: MixedTiles | None = LLAMA_8B_ON_RTX_PRO,
    longest: int = 0,
) -> float:
    return mixed_attention_s(
        prefill_s,
        decode_s,
        num_decode=num_decode,
        decode_context_tokens=context,
        prefill_tokens=prefill_tokens,
        tiles=tiles,
        longest_chunk_tokens=longest,
    )


def free_of_overheads(**changes: float) -> MixedTiles:
    """10 heads on 100 slots, so 10 sequences fill a wave; one second per 1,024 keys of a tile."""
    plain = tiles_of(
        TileCoefficients(tile_s=0.0, empty_tile_s=0.0, l2_share=1.0, reread_share=1.0),
        HUNDRED_SLOTS,
        heads=10,
        kv_heads=10,
        head_dim=128,
        layers=1,
        prefill_s_per_pair=1.0 / 1024 / 64 / 10,
    )
    return plain._replace(**changes)


seconds = st.floats(1e-7, 10.0)
sequences = st.integers(1, 1024)
lengths = st.integers(1, 131_072)
chunks = st.integers(1, 16_384)


class TestLaws:
    @given(seconds, seconds, sequences, lengths, chunks)
    def test_a_lone_part_takes_exactly_its_own_time(
        self, prefill_s: float, decode_s: float, n: int, length: int, chunk: int
    ) -> None:
        assert mixed(prefill_s, 0.0, 0, 0, chunk) == prefill_s
        assert mixed(0.0, decode_s, n, n * length, 0) == decode_s

    @given(seconds, seconds, sequences, lengths, chunks)
    def test_never_faster_than_the_slower_part(
        self, prefill_s: float, decode_s: float, n: int, length: int, chunk: int
    ) -> None:
        assert mixed(prefill_s, decode_s, n, n * length, chunk) >= max(prefill_s, decode_s)

    @given(seconds, seconds, seconds, sequences, lengths, chunks)
    def test_grows_with_both_parts(
        self, prefill_s: float, decode_s: float, more_s: float, n: int, length: int, chunk: int
    ) -> None:
        base = mixed(prefill_s, decode_s, n, n * length, chunk) * (1 - 1e-12)
        assert mixed(prefill_s + more_s, decode_s, n, n * length, chunk) >= base
        assert mixed(prefill_s, decode_s + more_s, n, n * length, chunk) >= base

    @given(seconds, seconds, sequences, lengths, chunks, st.integers(1, 4096))
    def test_grows_with_every_shape(
        self, prefill_s: float, decode_s: float, n: int, length: int, chunk: int, more: int
    ) -> None:
        base = mixed(prefill_s, decode_s, n, n * length, chunk) * (1 - 1e-12)
        assert mixed(prefill_s, decode_s, n + more, (n + more) * length, chunk) >= base
        assert mixed(prefill_s, decode_s, n, n * length + more, chunk) >= base
        assert mixed(prefill_s, decode_s, n, n * length, chunk + more) >= base

    @given(seconds, seconds, sequences, lengths, chunks)
    def test_apart_launched_kernels_add_up(
        self, prefill_s: float, decode_s: float, n: int, length: int, chunk: int
    ) -> None:
        assert mixed(prefill_s, decode_s, n, n * length, chunk, None) == prefill_s + decode_s


class TestWavesByHand:
    """A context of 960 tokens is 1,024 keys: half a block of 128 is read in vain on average."""

    def test_what_fits_one_wave_runs_side_by_side(self) -> None:
        # 5 x 10 decode tiles and 2 x 10 of prefill on 100 slots: the longer of 1 s and 3 s.
        assert mixed(3.0, 0.1, 5, 5 * 960, 128, free_of_overheads()) == pytest.approx(3.0)
        assert mixed(0.4, 0.1, 5, 5 * 960, 128, free_of_overheads()) == pytest.approx(1.0)

    def test_waves_follow_each_other_and_half_of_the_last_overlaps(self) -> None:
        # 40 x 10 tiles: 4 waves and half a wave of rounding, each (4 + 1/2) / 4 s long in the
        # mean; the one wave of prefill takes 1 s and overlaps for half of it.
        assert mixed(1.0, 0.1, 40, 40 * 960, 64, free_of_overheads()) == pytest.approx(5.0)

    def test_streaming_binds_where_it_takes_longer_than_the_tiles(self) -> None:
        # 9 s of decode alone against 4.5 s of tiles; the overlap is half a second again.
        assert mixed(1.0, 9.0, 40, 40 * 960, 64, free_of_overheads()) == pytest.approx(9.5)

    def test_heads_that_share_keys_read_them_again_beyond_the_cache(self) -> None:
        # Twice as many keys as the cache holds: x = 2, x^2 / (1 + x^2) = 4/5. 40 of 100 slots'
        # worth of sequences are reread by 3 more heads: 9 s x (1 + 3 x 0.4 x 0.8).
        tiles = free_of_overheads(shared_heads=3.0, reread_per_sequence=0.01, l2_keys=40 * 1024 / 2)
        assert mixed(1.0, 9.0, 40, 40 * 960, 64, tiles) == pytest.approx(0.5 + 9.0 * 1.96)

    def test_each_further_tile_of_the_longest_chunk_launches_empty_ones(self) -> None:
        plain, dear = free_of_overheads(), free_of_overheads(empty_s=0.01)
        shape = (1.0, 0.1, 40, 40 * 960.0)
        # 4 waves x (512 / 64 - 1) empty tiles.
        assert mixed(*shape, 512, dear) - mixed(*shape, 512, plain) == pytest.approx(0.28)
        assert mixed(*shape, 512, dear, 128) - mixed(*shape, 512, plain) == pytest.approx(0.04)

    def test_windowed_layers_stop_at_their_window(self) -> None:
        local = free_of_overheads(window=1024.0, windowed_share=1.0)
        half = free_of_overheads(window=1024.0, windowed_share=0.5)
        short, long = (0.1, 0.1, 5, 5 * 960.0, 64), (0.1, 0.1, 5, 5 * 1984.0, 64)
        assert mixed(*long, local) == pytest.approx(mixed(*short, local))
        assert mixed(*long, half) == pytest.approx(1.5)


class TestWhereItApplies:
    @pytest.mark.parametrize(
        ("gpu", "backend", "kv_element_bytes"),
        [
            ("h100_sxm", "vllm", 2.0),
            ("b200_sxm", "vllm", 2.0),
            ("a100_sxm", "sglang", 2.0),
            ("a100_sxm", "trtllm", 2.0),
            ("l40s", "vllm", 1.0),
        ],
    )
    def test_other_kernels_are_not_modelled(
        self, gpu: str, backend: str, kv_element_bytes: float
    ) -> None:
        assert (
            mixed_tiles(
                get_gpu(gpu),
                backend,
                heads=32,
                kv_heads=8,
                head_dim=128,
                layers=32,
                prefill_s_per_pair=6e-11,
                kv_element_bytes=kv_element_bytes,
            )
            is None
        )

    def test_gpus_of_capability_8_and_12_run_it(self) -> None:
        runs = {key for key in list_gpus() if gpu_slots(get_gpu(key)) is not None}
        capable = {key for key in list_gpus() if int(get_gpu(key).compute_capability) in (8, 12)}
        assert runs == capable

    def test_tiles_fit_by_shared_memory(self) -> None:
        def shared_bytes(name: str) -> int:
            slots = gpu_slots(get_gpu(name))
            assert slots is not None
            return slots.shared_bytes

        assert tiles_per_sm(shared_bytes("a100_sxm"), 128) == 2
        assert tiles_per_sm(shared_bytes("rtx_4090"), 128) == 1
        assert tiles_per_sm(shared_bytes("a100_sxm"), 256) == 1


class TestReading:
    def test_a_folder_without_grids_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="no attention"):
            read_mixed_grids(tmp_path)

    def test_other_columns_are_named_with_the_line(self, tmp_path: Path) -> None:
        folder = tmp_path / "RTX4090" / "org" / "model" / "bf16" / "tp1"
        folder.mkdir(parents=True)
        (folder / "attention.csv").write_text("chunk,time_us\n1,2\n")
        with pytest.raises(UserError, match=r"attention.csv:1: columns .*'chunk'"):
            read_mixed_grids(tmp_path)


@pytest.fixture(scope="module")
def grid(shared_data: Path) -> MixedGrid:
    folder = shared_data / "opgrids"
    if not folder.is_dir():
        pytest.skip(f"measured attention grids not present: {folder}")
    return read_mixed_grids(folder)


class TestAgainstMeasurement:
    def test_all_measured_mixed_points_are_read(self, grid: MixedGrid) -> None:
        assert len(grid) == 122_208
        assert sum(name.endswith("tp1") for name in grid.name) == 65_328

    def test_the_shipped_coefficients_are_a_refit(self, grid: MixedGrid) -> None:
        assert asdict(fitted(grid)) == pytest.approx(asdict(coefficients()), rel=0.02)

    def test_unseen_models_and_gpus_are_predicted_far_better_than_by_the_sum(
        self, grid: MixedGrid
    ) -> None:
        scores = list(held_out(grid, (ADDITIVE, TILES)))
        ours = {(s.left_out, s.scored): s for s in scores if s.form == TILES.name}
        for added in (s for s in scores if s.form == ADDITIVE.name):
            mine = ours[added.left_out, added.scored]
            assert mine.median < 0.06 < 0.2 < added.median
            assert mine.p90 < 0.19 < 0.6 < added.p90

    def test_the_run_time_function_is_the_fitted_one(self, grid: MixedGrid) -> None:
        rows = grid.where(np.arange(0, len(grid), 397))
        expected = TILES.seconds(parameters_of(coefficients()), rows)
        for i, vector_s in enumerate(expected):
            slots = gpu_slots(get_gpu(str(rows.gpu[i])))
            assert slots is not None
            tiles = tiles_of(
                coefficients(),
                slots,
                heads=int(rows.heads[i]),
                kv_heads=int(rows.kv_heads[i]),
                head_dim=128,
                layers=1,
                prefill_s_per_pair=float(rows.s_per_pair[i]),
            )
            n = int(rows.num_decode[i])
            # The context that has, on average over lengths, the blocks of the point's one length.
            context = n * ((rows.context[i] // 128 + 1) * 128 - 64)
            parts = float(rows.prefill_s[i]), float(rows.decode_s[i])
            scalar_s = mixed(*parts, n, float(context), int(rows.chunk[i]), tiles)
            assert scalar_s == pytest.approx(vector_s, rel=1e-9)

    def test_long_decode_contexts_cost_more_than_twice_the_sum(self, grid: MixedGrid) -> None:
        rows = grid.where(grid.num_decode * grid.context > 65_536)
        ratio = rows.mixed_s / (rows.prefill_s + rows.decode_s)
        assert np.median(ratio) > 2.0
        assert np.median(errors(TILES, parameters_of(coefficients()), rows)) < 0.06
