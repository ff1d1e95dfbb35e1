"""The command, without PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dynosim import cli
from fake_bench import small_ledger


def test_without_pytorch_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cli.run(["calibrate", "measure"]) == 2
    assert "pip install 'dynosim[measure]'" in capsys.readouterr().err


def test_a_ledger_brought_home_becomes_tables_without_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    small_ledger(tmp_path, "NVIDIA H200")
    words = ["calibrate", "measure", "--budget-s", "0", "--out", str(tmp_path), "--compare"]
    assert cli.run(words) == 0
    out = capsys.readouterr().out
    assert f"dynosim simulate --gpu h200_sxm --kernel-tables {tmp_path}" in out
    assert "measured / shipped" in out
    assert (tmp_path / "gemm.csv").is_file()


def test_no_ledger_and_nothing_to_measure_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["calibrate", "measure", "--budget-s", "0"]) == 2
    assert "there is no ledger" in capsys.readouterr().err
