"""A GPU of one's own: a card in a file, named where a GPU is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.timing.chain import timing_source
from dynosim.hardware_models.timing.table_source import TableSource

WHOLE = """\
key: abacus
compute_capability: 8.0
memory_bytes: 8.0e+9
hbm_bandwidth_bytes_s: {value: 1.0e+11, source: measured}
peak_flop_s: {bfloat16: 1.0e+12, fp8: {value: 2.0e+12}}
pcie_bandwidth_bytes_s: 1.0e+10
internode_bandwidth_bytes_s: 1.0e+9
gpus_per_node: 1
tdp_w: 75
sources: {measured: {title: mine, url: "", date: 2026-01-01}}
"""


def card(tmp_path: Path, text: str) -> str:
    path = tmp_path / "abacus.yaml"
    path.write_text(text)
    return str(path)


def test_a_whole_card_is_a_gpu(tmp_path: Path) -> None:
    gpu = get_gpu(card(tmp_path, WHOLE))
    assert (gpu.key, gpu.name, gpu.memory_bytes) == ("abacus", "abacus", 8.0e9)
    assert gpu.hbm_bandwidth_bytes_s == 1e11
    assert dict(gpu.peak_flop_s) == {"bfloat16": 1e12, "fp8": 2e12}
    assert (gpu.nvlink_bandwidth_bytes_s, gpu.tables, gpu.own_tables) == (None, None, None)


def test_a_card_like_another_takes_its_figures_and_borrows_its_tables(tmp_path: Path) -> None:
    """An H200 with half the bandwidth: its kernels are those of the H200, carried over."""
    h200 = get_gpu("h200_sxm")
    gpu = get_gpu(card(tmp_path, "like: H200\nhbm_bandwidth_bytes_s: 2.4e+12\n"))
    assert gpu.memory_bytes == h200.memory_bytes
    assert gpu.peak_flop_s == h200.peak_flop_s
    assert gpu.hbm_bandwidth_bytes_s == 2.4e12
    assert (gpu.key, gpu.tables, gpu.tables_nearest) == ("abacus", None, "h200_sxm")
    first = next(timing_source(gpu, "vllm").sources())  # type: ignore[attr-defined]
    assert isinstance(first, TableSource)
    assert first.measured_on == h200


def test_kernel_tables_stand_relative_to_the_card(tmp_path: Path) -> None:
    gpu = get_gpu(card(tmp_path, f"{WHOLE}kernel_tables: tables\n"))
    assert gpu.own_tables == str(tmp_path / "tables")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("like: h2000\n", "unknown gpu 'h2000'"),
        (WHOLE.replace("tdp_w: 75\n", ""), "`tdp_w` is missing"),
        (WHOLE.replace("8.0e+9", "8e9"), "memory_bytes: found '8e9'"),
        (WHOLE.replace("tdp_w: 75", "tdp_w: -1"), "tdp_w: found -1"),
        (WHOLE.replace("tdp_w", "tdpw"), "unknown key 'tdpw'"),
        (WHOLE.replace("bfloat16: 1.0e+12, ", ""), "bfloat16 or float16 among them"),
        ("[]\n", "expected a mapping"),
    ],
)
def test_a_bad_card_is_told_with_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        get_gpu(card(tmp_path, text))
    assert message in str(error.value)


def test_a_missing_card_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        get_gpu(str(tmp_path / "none.yaml"))
