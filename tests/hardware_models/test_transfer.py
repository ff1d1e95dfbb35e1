"""Seconds carried from a measured GPU to one that was not: what is kept and what is not."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.timing.chain import timing_source
from dynosim.hardware_models.timing.shapes import AttentionShape
from dynosim.hardware_models.timing.transfer import (
    SUSTAINED_SHARE,
    carried,
    full_rate,
    same_generation,
)

L40S, RTX_4090 = get_gpu("l40s"), get_gpu("rtx_4090")


def test_generations_by_compute_capability() -> None:
    assert same_generation(get_gpu("a40"), L40S)
    assert same_generation(get_gpu("b200_sxm"), get_gpu("b300_sxm"))
    assert not same_generation(get_gpu("a100_sxm"), get_gpu("a40"))
    assert not same_generation(get_gpu("b200_sxm"), get_gpu("rtx_5090"))


@pytest.mark.parametrize(
    ("slow", "measured"),
    [
        ("rtx_4090", "l40s"),
        ("rtx_3090", "l40s"),
        ("a10g", "l40s"),
        ("rtx_5090", "rtx_pro_6000_server"),
        ("h20", "h200_sxm"),
    ],
)
def test_chips_sold_with_slower_tensor_cores_are_found(slow: str, measured: str) -> None:
    gpu, on = get_gpu(slow), get_gpu(measured)
    full = full_rate(gpu, on)
    chip = gpu.peak("float32") / on.peak("float32")
    assert full.peak("bfloat16") == pytest.approx(chip * on.peak("bfloat16"))
    assert full.peak("bfloat16") > 1.7 * gpu.peak("bfloat16")
    assert replace(full, peak_flop_s=gpu.peak_flop_s) == gpu


@pytest.mark.parametrize(
    ("gpu", "measured"),
    [
        ("l4", "l40s"),
        ("a40", "l40s"),
        ("h100_pcie", "h100_sxm"),
        ("h100_nvl", "h100_sxm"),
        ("gh200", "h200_sxm"),
        ("a30", "a100_sxm"),
        ("t4", "l40s"),
    ],
)
def test_chips_at_their_full_rate_stay_as_they_are(gpu: str, measured: str) -> None:
    assert full_rate(get_gpu(gpu), get_gpu(measured)) is get_gpu(gpu)


def test_seconds_follow_the_chip_until_the_slower_cores_bind() -> None:
    def roof(gpu: object) -> np.ndarray:
        assert isinstance(gpu, type(L40S))
        return np.array([1e12, 1e12]) / gpu.peak("bfloat16")

    near = roof(L40S)
    # Utilisation 0.05 leaves the tensor cores idle whatever their rate; 0.6 does not.
    seconds = carried(near / np.array([0.05, 0.6]), near, roof, RTX_4090, L40S)
    assert seconds[0] == pytest.approx(near[0] / 0.05 * 91.6 / 82.6)
    assert seconds[1] == pytest.approx(1e12 / 165.2e12 / SUSTAINED_SHARE)


def test_a_gpu_at_full_rate_keeps_utilisation() -> None:
    l4 = get_gpu("l4")
    near, wanted = np.array([1.0]), np.array([3.0])
    assert carried(np.array([2.0]), near, lambda _: wanted, l4, L40S) == pytest.approx(6.0)


def test_large_prefill_on_h20_runs_near_its_peak() -> None:
    h20 = get_gpu("h20")
    seconds = timing_source(h20, "vllm").gemm_s(np.array([8192.0]), 8192, 8192, "bfloat16").value
    share = 2 * 8192**3 / h20.peak("bfloat16") / seconds[0]
    assert share == pytest.approx(SUSTAINED_SHARE, rel=0.01)


class TestAgainstMeasurement:
    """RTX 4090 under vLLM 0.19.0, not used anywhere in the rule."""

    def rows(self, shared_data: Path, file: str) -> list[list[str]]:
        folder = shared_data / "opgrids" / "RTX4090" / "meta-llama" / "Llama-3.1-8B"
        path = folder / "bf16" / "tp1" / file
        if not path.is_file():
            pytest.skip(f"measured kernels not present: {path}")
        with gzip.open(path, "rt", newline="") as lines:
            return list(csv.reader(lines))[1:]

    def test_gemms_of_a_prefill(self, shared_data: Path) -> None:
        shapes = {
            "qkv_proj": (6144, 4096),
            "o_proj": (4096, 4096),
            "gate_up_proj": (28672, 4096),
            "down_proj": (4096, 14336),
        }
        source, errors = timing_source(RTX_4090, "vllm"), []
        for layer, tokens, us in self.rows(shared_data, "dense.csv.gz"):
            if layer in shapes and int(tokens) >= 256:
                ours = source.gemm_s(np.array([float(tokens)]), *shapes[layer], "bfloat16").value
                errors.append(ours[0] / (float(us) * 1e-6) - 1.0)
        assert len(errors) > 100
        assert abs(np.median(errors)) < 0.05
        assert np.quantile(np.abs(errors), 0.9) < 0.12

    def test_attention_of_long_chunks(self, shared_data: Path) -> None:
        shape = AttentionShape(heads=32, kv_heads=8, qk_dim=128, v_dim=128)
        curve = timing_source(RTX_4090, "vllm").prefill_attention(shape).value
        errors = [
            curve.seconds(float(chunk), float(prefix)) / (float(us) * 1e-6) - 1.0
            for chunk, prefix, n, _, us in self.rows(shared_data, "attention.csv.gz")
            if int(n) == 0 and int(chunk) == 2048
        ]
        assert len(errors) > 8
        assert np.max(np.abs(errors)) < 0.20
