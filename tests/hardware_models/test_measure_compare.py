"""What was measured beside what is shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.measure.compare import compare
from dynosim.hardware_models.measure.grid import plan, read_grid
from dynosim.hardware_models.timing.tables import load_table
from fake_bench import Clock, FakeBench, gemms, opened, timed


def test_measured_over_shipped_is_one_where_the_shipped_rows_were_measured_again(
    tmp_path: Path,
) -> None:
    ledger = opened(tmp_path, FakeBench(Clock(), "NVIDIA H200"))
    shipped = load_table("h200_sxm", "vllm", "gemm").select(gemm_dtype="bfloat16", n=4096, k=4096)
    for m, seconds in zip(shipped.column("m").tolist(), shipped.latency_s.tolist(), strict=True):
        ledger.record(gemms(m)[0], timed(seconds))
    ratios = {r.backend: r for r in compare(ledger)}
    assert ratios["vllm"].shapes == len(shipped)
    assert ratios["vllm"].median == ratios["vllm"].p10 == ratios["vllm"].p90 == 1.0
    assert 0.5 < ratios["sglang"].median < 2.0


def test_nothing_is_shipped_to_compare_an_unknown_device_with(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no tables of 'Abacus' are shipped"):
        compare(opened(tmp_path, FakeBench(Clock())))


def test_the_standard_grid_meets_the_shipped_tables_often_enough_to_compare() -> None:
    shipped = load_table("h200_sxm", "vllm", "gemm")
    rows = set(zip(*(shipped.column(k).tolist() for k in shipped.keys), strict=True))
    cases = plan(read_grid("standard"), ops=["gemm"])
    assert sum(case.values in rows for case in cases) > len(cases) / 3
