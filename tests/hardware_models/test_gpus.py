"""The catalogue of GPUs: spellings, sanity of the figures, a source for each."""

import datetime

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu, gpu_sources, list_gpus

GIB = 2**30
MEASURED = {
    "a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300", "l40s",
    "rtx_pro_6000_server",
}  # fmt: skip


@pytest.mark.parametrize(
    ("spelling", "key"),
    [
        ("H100", "h100_sxm"),
        ("h100_sxm", "h100_sxm"),
        ("H100-80GB-HBM3", "h100_sxm"),
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("A100", "a100_sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100_sxm"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090"),
        ("RTX PRO 6000", "rtx_pro_6000_server"),
        ("GH200", "gh200"),
    ],
)
def test_spellings(spelling, key):
    assert get_gpu(spelling).key == key


@pytest.mark.parametrize("miss", ["H10", "H1000", "RTX 4900", ""])
def test_a_near_miss_is_an_error(miss):
    with pytest.raises(UserError, match="unknown gpu"):
        get_gpu(miss)


def test_a_near_miss_names_the_nearest():
    with pytest.raises(UserError, match="H100"):
        get_gpu("H10")


def test_every_key_names_itself():
    assert [get_gpu(key).key for key in list_gpus()] == list(list_gpus())


def test_measured_tables_belong_to_the_gpus_that_were_measured():
    tables = {get_gpu(key).tables for key in list_gpus()} - {None}
    assert tables == MEASURED
    assert {get_gpu(key).tables_nearest for key in list_gpus()} <= MEASURED


@pytest.mark.parametrize(
    ("name", "gib"), [("H100", 79.19), ("L40S", 44.42), ("RTX 4090", 23.52), ("T4", 14.56)]
)
def test_memory_is_what_the_driver_reports(name, gib):
    assert get_gpu(name).memory_bytes / GIB == pytest.approx(gib, abs=0.005)


def test_rtx_4090_memory_to_the_byte():
    assert get_gpu("RTX 4090").memory_bytes == 25_250_627_584


@pytest.mark.parametrize("key", list_gpus())
def test_every_figure_has_a_source_with_a_date(key):
    sources = gpu_sources(key)
    assert {"memory_bytes", "hbm_bandwidth_bytes_s", "tdp_w"} <= set(sources)
    assert any(figure.startswith("peak_flop_s.") for figure in sources)
    for figure, source in sources.items():
        assert source.title, figure
        assert datetime.date.fromisoformat(source.date) <= datetime.date(2026, 12, 31), figure


@pytest.mark.parametrize("key", list_gpus())
def test_a_figure_without_a_page_is_marked_as_estimate(key):
    for figure, source in gpu_sources(key).items():
        assert source.url or source.estimate or figure in {
            "hbm_bandwidth_bytes_s", "nvlink_bandwidth_bytes_s", "pcie_bandwidth_bytes_s", "tdp_w",
        } or figure.startswith("peak_flop_s."), figure  # fmt: skip


@pytest.mark.parametrize("key", list_gpus())
def test_figures_are_of_the_right_size(key):
    gpu = get_gpu(key)
    assert 10 * GIB < gpu.memory_bytes < 300 * GIB
    assert 0.25e12 <= gpu.hbm_bandwidth_bytes_s <= 9e12
    assert gpu.peak("float16") <= gpu.hbm_bandwidth_bytes_s * 1000
    assert gpu.pcie_bandwidth_bytes_s <= (gpu.nvlink_bandwidth_bytes_s or 1e12)
    assert 50 < gpu.tdp_w < 1500


@pytest.mark.parametrize("key", list_gpus())
def test_narrower_formats_are_not_slower(key):
    gpu = get_gpu(key)
    if gpu.supports("fp8"):
        assert gpu.peak("fp8") >= 1.9 * gpu.peak("bfloat16")
    if gpu.supports("nvfp4"):
        assert gpu.peak("nvfp4") >= 1.9 * gpu.peak("fp8")


def test_ampere_has_no_fp8():
    assert not get_gpu("A100").supports("fp8")
    with pytest.raises(KeyError):
        get_gpu("A100").peak("fp8")
