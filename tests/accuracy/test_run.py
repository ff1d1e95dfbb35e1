"""Cases are simulated as they were run, and the number of processes changes nothing."""

from dataclasses import replace

import pytest

from dynosim.accuracy.run import num_requests, run_case, run_cases
from dynosim.sim.workload.build import build_workload


def test_outcomes_come_in_the_order_of_cases_whatever_the_number_of_jobs(case):
    cases = [case(row=f"f:{i}", seed=i) for i in range(5)]
    serial, pooled = run_cases(cases), run_cases(cases, jobs=2)
    assert [o.case.row for o in pooled] == [c.row for c in cases]
    # NaN is equal to nothing, but prints alike.
    assert [str(o.predicted) for o in serial] == [str(o.predicted) for o in pooled]
    assert [o.basis for o in serial] == [o.basis for o in pooled]


def test_every_case_is_reported_with_its_requests(case):
    told = []
    run_cases([case(row="f:1"), case(row="f:2")], report=told.append)
    assert told == [4, 4]


def test_a_case_that_cannot_run_is_an_answer(case):
    too_large = replace(case().deployment, model="meta-llama/Llama-3.1-70B-Instruct")
    outcome = run_case(case(deployment=too_large))
    assert "memory" in outcome.refusal
    assert outcome.predicted == {}


def test_a_workload_may_be_columns(case):
    columns = build_workload(case().workload)
    made = case(workload=columns)
    assert num_requests(made) == 4
    assert str(run_case(made).predicted) == str(run_case(case()).predicted)


def test_figures_of_the_case_hold_over_those_of_the_caller(case):
    slow = run_case(case(), {"frontend_s": 1.0}).predicted["mean_ttft_ms"]
    quick = run_case(case(overheads={"frontend_s": 0.0}), {"frontend_s": 1.0})
    assert slow - quick.predicted["mean_ttft_ms"] == pytest.approx(1000.0, rel=0.05)
