"""Tables, manifest and card, from what was measured."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.measure.card import memory_bytes_s, peak_flop_s
from dynosim.hardware_models.measure.case import Skipped
from dynosim.hardware_models.measure.families import FOR_PEOPLE
from dynosim.hardware_models.measure.write import write_tables
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.hardware_models.timing.own_tables import own_table, own_tables
from dynosim.hardware_models.timing.step_timer import StepTimer
from fake_bench import Clock, FakeBench, gemms, opened, small_ledger, timed


def test_the_tables_read_back_as_they_were_measured(tmp_path: Path) -> None:
    ledger = small_ledger(tmp_path, "NVIDIA H200")
    write_tables(ledger, tmp_path)
    header = own_tables(str(tmp_path))
    assert (header.gpu, header.backend, header.version) == ("h200_sxm", "torch", "2.9.0")
    assert "dynosim calibrate measure, torch 2.9.0, launched graph" in header.source
    for family in {case.family for case in ledger.outcomes} - set(FOR_PEOPLE):
        table = own_table(str(tmp_path), family)
        shapes = set(zip(*(table.column(key).tolist() for key in table.keys), strict=True))
        assert shapes == {case.values for case in ledger.timings(family)}
        assert table.latency_s == pytest.approx(1e-6)
    assert not (tmp_path / "card.yaml").exists()


def test_what_no_simulation_reads_is_written_apart_with_its_statistics(tmp_path: Path) -> None:
    write_tables(small_ledger(tmp_path, "NVIDIA H200"), tmp_path)
    with (tmp_path / "other" / "copy.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["op"] for row in rows} >= {"read", "write", "copy"}
    assert set(rows[0]) == {"op", "bytes", "latency_us", "p10_us", "p90_us", "samples", "kernel"}


def test_the_manifest_says_what_is_missing_and_why(tmp_path: Path) -> None:
    ledger = opened(tmp_path, FakeBench(Clock()))
    for case in gemms(1, 2):
        ledger.record(case, Skipped("too large"))
    ledger.record(gemms(4)[0], timed(1.0))
    write_tables(ledger, tmp_path, unreached=7)
    found = json.loads((tmp_path / "manifest.json").read_text())
    assert found["skipped"] == [{"family": "gemm", "reason": "too large", "shapes": 2}]
    assert found["unreached"] == 7
    assert found["families"]["gemm"]["rows"] == 1


def test_a_device_that_the_catalogue_lacks_gets_a_card_that_simulates(tmp_path: Path) -> None:
    """Best product 2·512·4096·1024 FLOP in 1 us, best move 2 bytes in 1 ns."""
    ledger = small_ledger(tmp_path, "Abacus 3000")
    write_tables(ledger, tmp_path)
    gpu = get_gpu(str(tmp_path / "card.yaml"))
    assert (gpu.key, gpu.name) == ("abacus_3000", "Abacus 3000")
    assert gpu.hbm_bandwidth_bytes_s == pytest.approx(memory_bytes_s(ledger)) == 2e9
    rate = 2 * 512 * 4096 * 1024 / 1e-6
    assert gpu.peak("bfloat16") == pytest.approx(rate, rel=1e-3)
    assert peak_flop_s(ledger) == {"bfloat16": pytest.approx(rate)}
    assert gpu.own_tables == str(tmp_path)
    args = EngineArgs(model="Qwen/Qwen2.5-0.5B", gpu=str(tmp_path / "card.yaml"))
    timer = StepTimer.compile(resolve_engine(args))
    assert any(s.name == "elementwise" and "own tables" in s.detail for s in timer.sources)


def test_a_card_that_is_there_is_left_alone(tmp_path: Path) -> None:
    ledger = small_ledger(tmp_path, "Abacus 3000")
    (tmp_path / "card.yaml").write_text("# mine\n")
    write_tables(ledger, tmp_path)
    assert (tmp_path / "card.yaml").read_text() == "# mine\n"
