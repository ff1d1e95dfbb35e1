"""What was measured is kept, whatever ends a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.measure.case import Skipped
from dynosim.hardware_models.measure.ledger import Ledger
from fake_bench import Clock, FakeBench, gemms, opened, timed


def test_a_killed_run_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    """What record() returned from is in the file."""
    bench = FakeBench(Clock())
    ledger = opened(tmp_path, bench)
    one, two = gemms(1, 2)
    ledger.record(one, timed(0.5))
    ledger.record(two, Skipped("too large"))
    ledger.note("state", {"at": 1.0})
    read = Ledger.read(ledger.path)
    assert read.outcomes == {one: timed(0.5), two: Skipped("too large")}
    assert read.states == [{"at": 1.0}]


def test_a_line_cut_in_half_is_dropped_and_written_over(tmp_path: Path) -> None:
    bench = FakeBench(Clock())
    ledger = opened(tmp_path, bench)
    one, two = gemms(1, 2)
    ledger.record(one, timed(0.5))
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole + b'{"family":"gemm","key":{"gem')
    again = opened(tmp_path, bench)
    assert list(again.outcomes) == [one]
    again.record(two, timed(0.25))
    assert ledger.path.read_bytes().startswith(whole)
    assert set(Ledger.read(ledger.path).outcomes) == {one, two}


@pytest.mark.parametrize("cut", range(0, 400, 37))
def test_wherever_a_ledger_is_cut_it_opens_again(tmp_path: Path, cut: int) -> None:
    bench = FakeBench(Clock())
    ledger = opened(tmp_path, bench)
    for case in gemms(1, 2):
        ledger.record(case, timed(0.5))
    ledger.path.write_bytes(ledger.path.read_bytes()[:cut])
    again = opened(tmp_path, bench)
    assert set(again.outcomes) <= set(gemms(1, 2))
    again.record(gemms(3)[0], timed(1.0))
    assert gemms(3)[0] in Ledger.read(ledger.path).outcomes


def test_another_device_does_not_continue_a_ledger(tmp_path: Path) -> None:
    opened(tmp_path, FakeBench(Clock(), "Abacus"))
    with pytest.raises(UserError, match="begun with device 'Abacus', but this is 'Slide rule'"):
        opened(tmp_path, FakeBench(Clock(), "Slide rule"))


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"a": 1}\n')
    with pytest.raises(UserError, match="not a ledger"):
        Ledger.read(path)
    path.write_text("nonsense\n")
    with pytest.raises(UserError, match=r"ledger.jsonl:1: not JSON"):
        Ledger.read(path)
