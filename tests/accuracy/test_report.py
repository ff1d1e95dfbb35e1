"""A validation as files: the same bytes for the same cases."""

import csv

import pytest

from dynosim.accuracy.measured_set import MeasuredSet
from dynosim.accuracy.peers import peer_scores
from dynosim.accuracy.report import write_report
from dynosim.accuracy.validation import Validation


@pytest.fixture
def validation(outcome):
    outcomes = (
        outcome(row="f:2", mean_ttft_ms=22.0, mean_tpot_ms=8.0),
        outcome(row="f:3", mean_ttft_ms=10.0, mean_tpot_ms=9.0),
        outcome(row="f:4", refusal="memory: weights 140.5 GiB do not fit"),
    )
    cases = tuple(o.case for o in outcomes)
    measured = MeasuredSet(name="made_up", cases=cases, dropped={"no figures": 3})
    return Validation(sets=(measured,), outcomes=outcomes, peers=())


def test_cases_have_a_line_for_every_metric_and_refused_ones_no_prediction(validation, tmp_path):
    write_report(validation, tmp_path)
    with (tmp_path / "cases.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(r["row"], r["metric"]) for r in rows[:2]] == [
        ("f:2", "mean_ttft_ms"),
        ("f:2", "mean_tpot_ms"),
    ]
    assert len(rows) == 6
    assert rows[0]["error_percent"] == "10.0"
    assert rows[4]["predicted"] == ""
    assert "do not fit" in rows[4]["refusal"]


def test_the_report_tells_errors_refusals_and_rows_left_out(validation, tmp_path):
    text = write_report(validation, tmp_path)[0].read_text(encoding="utf-8")
    assert "| made_up | 3 | 1 | 3 |" in text
    assert "| made_up | left out | no figures | 3 |" in text
    assert "| made_up | refused | memory: weights N GiB do not fit | 1 |" in text
    assert "| made_up | light | TTFT | 2 | 30.0% | 46.0% | -20.0% | 50% |" in text
    assert "](images/accuracy-ttft.png)" in text


def test_the_same_validation_writes_the_same_bytes(validation, tmp_path):
    files = write_report(validation, tmp_path / "a"), write_report(validation, tmp_path / "b")
    assert len(files[0]) == 4
    for one, other in zip(*files, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_peers_are_cited_with_their_source_where_no_file_has_them():
    scores = peer_scores(None)
    assert {(s.set, s.quantity) for s in scores} >= {("silicon", "tpot"), ("silicon", "ttft")}
    assert all(s.source and 0 < s.median_ape < 2 for s in scores)


def test_peers_published_predictions_are_scored(shared_data):
    scores = {(s.simulator, s.quantity): s for s in peer_scores(shared_data)}
    assert scores["LLMServingSim", "tpot"].median_ape < 0.02
    assert ("vidur", "e2el") in scores
