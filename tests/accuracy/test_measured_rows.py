"""Rows of a measured set: where they stand, what is missing, what is left out and why."""

import gzip
import math
from pathlib import Path

import pytest

from dynosim.accuracy import measured_rows
from dynosim.accuracy.case import Case
from dynosim.accuracy.measured_rows import NoCase, Row
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

SMALL = "Qwen/Qwen2.5-0.5B-Instruct"


def read(row: Row) -> Case:
    if row.text("gpu") == "abacus":
        raise NoCase("no card for the GPU abacus")
    return Case(
        set="s",
        group="g",
        row=row.where,
        deployment=Deployment(model=SMALL, gpu=row.text("gpu")),
        workload=WorkloadSpec(num_prompts=row.integer("n")),
        measured=row.measured({"mean_ttft_ms": "ttft", "mean_tpot_ms": "tpot"}),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    text = "gpu,n,ttft,tpot\nh100_sxm,1.0,12.5,\nabacus,2,1,1\nabacus,3,1,1\nt4,4,8,9\n"
    file = tmp_path / "rows.csv.gz"
    file.write_bytes(gzip.compress(text.encode()))
    return file


def test_a_case_says_in_which_line_it_stands(path: Path) -> None:
    assert [c.row for c in measured_rows.cases(path, read)] == ["rows.csv.gz:2", "rows.csv.gz:5"]


def test_empty_cells_are_not_measured(path: Path) -> None:
    first, second = measured_rows.cases(path, read)
    assert first.measured == {"mean_ttft_ms": 12.5}
    assert second.measured == {"mean_ttft_ms": 8.0, "mean_tpot_ms": 9.0}
    assert math.isnan(Row({"x": ""}, "here").number("x"))


def test_rows_without_a_case_are_counted_by_reason(path: Path) -> None:
    assert measured_rows.dropped(path, read) == {"no card for the GPU abacus": 2}


def test_room_is_what_a_request_needs_unless_the_model_declares_less() -> None:
    assert measured_rows.room_for(SMALL, 4096) == 4096
    assert measured_rows.room_for(SMALL, 10**6) is None
    with pytest.raises(NoCase, match="no card for the model abacus"):
        measured_rows.room_for("abacus", 1)
