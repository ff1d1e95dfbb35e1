"""Demand: hours of a file, growth, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.planning.demand import Demand, growth_factor, read_demand


def curve(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "day.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_hour_a_row_with_or_without_a_header(tmp_path: Path) -> None:
    for head in ("", "hour,requests_s\n"):
        found = read_demand(curve(tmp_path, f"{head}0,2\n1,4\n\n2,12\n"))
        assert (found.peak, found.mean) == (12.0, 6.0)


def test_growth_compounds() -> None:
    assert growth_factor(0.1, 2) == pytest.approx(1.21)
    assert Demand(requests_s=(1.0, 3.0)).times(2).requests_s == (2.0, 6.0)


@pytest.mark.parametrize(("text", "problem"), [("1\nx\n", "day.csv:2"), ("1\n-2\n", "day.csv:2")])
def test_rows_that_are_no_rate_are_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        read_demand(curve(tmp_path, text))


def test_a_curve_without_demand_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no hour has any demand"):
        read_demand(curve(tmp_path, "0\n0\n"))
