"""An engine's own kernels in place of PyTorch's: what they compute, and what tables say of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dynosim.hardware_models.measure.case import Case, Timing
from dynosim.hardware_models.measure.lab import Lab
from dynosim.hardware_models.measure.ledger import Ledger
from dynosim.hardware_models.measure.ops._attention import Heads
from dynosim.hardware_models.measure.write import write_tables
from dynosim.hardware_models.timing.own_tables import own_tables

ORIGIN = {"device": "NVIDIA H100 80GB HBM3", "torch": "2.13.0", "launch": "eager"}
GEMM = {"gemm_dtype": "bfloat16", "n": 64, "k": 32, "m": 2}


def ledger(folder: Path, origin: dict[str, Any]) -> Ledger:
    found = Ledger.open(folder / "ledger.jsonl", origin)
    case = Case("gemm", tuple(GEMM.values()))
    found.record(case, Timing(1e-5, 1e-5, 1e-5, 5, 0.0, 0.0, 0.0, "linear"))
    return found


def test_tables_name_the_engine_whose_kernels_they_are(tmp_path: Path) -> None:
    write_tables(
        ledger(tmp_path, ORIGIN | {"engine": "vllm", "engine_version": "0.32.0"}), tmp_path
    )
    found = own_tables(str(tmp_path))
    assert (found.backend, found.version) == ("vllm", "0.32.0")


def test_without_one_they_are_pytorchs(tmp_path: Path) -> None:
    write_tables(ledger(tmp_path, ORIGIN), tmp_path)
    found = own_tables(str(tmp_path))
    assert (found.backend, found.version) == ("torch", "2.13.0")


@pytest.fixture(scope="module")
def lab() -> Lab:
    """vLLM's kernels on this CPU: only where its CPU build is installed beside dynosim."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    why = "vLLM's CPU build is not installed: see examples/verify_cpu/README.md"
    torch = pytest.importorskip("torch", reason=why)
    pytest.importorskip("vllm", reason=why)
    from dynosim.hardware_models.measure.engines import vllm

    return Lab(torch, torch.device("cpu"), "float32", vllm)


def test_its_products_are_products(lab: Lab) -> None:
    (call, *_) = lab.engine.linear(lab, "float32", 64, 32, 5).calls
    assert call().shape == (5, 64)


def test_its_attention_takes_prompts_and_decodes_at_once(lab: Lab) -> None:
    heads = Heads(heads=4, kv_heads=2, head_dim=32, dtype="float32")
    calls = lab.engine.attention(lab, heads, [8, 1, 1], [40, 33, 5]).calls
    calls[0]()
    assert len(calls) > 1, "caches are not cold"
