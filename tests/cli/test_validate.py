"""``dynosim validate``: what it prints, writes and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def measured(checkout: Path) -> Path:
    return checkout / "tests" / "cli" / "measured"


def test_json_has_errors_by_class_and_what_was_left_out(
    dynosim: Callable[..., Any], measured: Path
) -> None:
    answer = dynosim("validate", "--data", measured, "--jobs", "1", "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    (a_set,) = found["sets"]
    assert (a_set["set"], a_set["cases"], a_set["refused"]) == ("silicon_sample", 7, {})
    assert sum(a_set["left_out"].values()) == 3
    assert sum(row["n"] for row in found["errors"] if row["quantity"] == "tpot") == 7


def test_files_are_written_on_request(
    dynosim: Callable[..., Any], measured: Path, tmp_path: Path
) -> None:
    answer = dynosim("validate", "--data", measured, "--jobs", "1", "--sample", "2", "-o", "out")
    assert answer.code == 0, answer.err
    assert answer.err == "written to out\n"
    names = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*")}
    assert names == {
        *("accuracy.md", "cases.csv"),
        *("images/accuracy-tpot.png", "images/accuracy-ttft.png"),
    }


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--data", "nowhere"), "there is no folder nowhere"),
        (("--set", "silicom"), "nearest: silicon"),
        (("--sample", "0"), "--sample: found 0"),
        (("--jobs", "two"), "--jobs: found 'two'"),
        (("--output", "file.txt"), "file.txt is a file"),
    ],
)
def test_mistakes_are_told_and_exit_with_2(
    dynosim: Callable[..., Any], tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    (tmp_path / "file.txt").touch()
    answer = dynosim("validate", *words)
    assert answer.code == 2
    assert told in answer.err
    assert answer.out == ""
