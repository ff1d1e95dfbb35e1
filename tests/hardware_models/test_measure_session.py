"""A measurement within a time budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.measure.case import Case, Unsupported
from dynosim.hardware_models.measure.session import Limits, Progress, measure
from dynosim.hardware_models.measure.write import manifest
from fake_bench import Clock, FakeBench, gemms, opened


def run(
    tmp_path: Path, bench: FakeBench, cases: list[Case], budget_s: float = 1e9, **k: Any
) -> Any:
    ledger = opened(tmp_path, bench)
    summary = measure(cases, bench, ledger, Limits(budget_s=budget_s), now=bench.clock, **k)
    return ledger, summary


def test_a_run_resumes_with_what_the_ledger_lacks(tmp_path: Path) -> None:
    cases = gemms(1, 2, 4, 8)
    first = FakeBench(Clock(), gemm=1.0)
    _, summary = run(tmp_path, first, cases, budget_s=15.0)
    assert (summary.tried, summary.unreached) == (2, 2)
    second = FakeBench(Clock(), gemm=1.0)
    ledger, summary = run(tmp_path, second, cases)
    assert (summary.resumed, summary.tried, summary.unreached) == (2, 2, 0)
    assert set(ledger.timings("gemm")) == set(cases)


def test_the_fastest_kernel_counts_and_is_named(tmp_path: Path) -> None:
    bench = FakeBench(Clock(), gemm={"slow": 0.5, "fast": 0.25, "broken": RuntimeError("no\nx")})
    ledger, _ = run(tmp_path, bench, gemms(1))
    (timing,) = ledger.timings("gemm").values()
    assert (timing.median_s, timing.kernel) == (0.25, "fast")


def test_what_cannot_be_measured_is_said_and_not_tried_again(tmp_path: Path) -> None:
    bench = FakeBench(
        Clock(), gemm=RuntimeError("out of memory\nand more"), nccl=Unsupported("needs 2 GPUs")
    )
    cases = [*gemms(1), Case("nccl", ("all_reduce", "half", 2, 1024))]
    ledger, summary = run(tmp_path, bench, cases)
    reasons = sorted(ledger.skips().values())
    assert reasons == ["fake: RuntimeError: out of memory", "needs 2 GPUs"]
    assert not ledger.timings("gemm")
    asked = len(bench.asked)
    _, summary = run(tmp_path, bench, cases)
    assert len(bench.asked) == asked
    assert summary.skipped == 2


def test_a_device_that_stops_answering_ends_the_run_with_all_before_kept(tmp_path: Path) -> None:
    bench = FakeBench(Clock(), elementwise=RuntimeError("illegal address"))
    bench.well = False
    cases = [*gemms(1), Case("elementwise", (2, 1)), *gemms(2)]
    with pytest.raises(UserError, match="stopped answering at elementwise 2 1"):
        run(tmp_path, bench, cases)
    bench.well = True
    ledger, summary = run(tmp_path, bench, cases)
    assert (summary.resumed, summary.tried) == (2, 1)
    assert set(ledger.timings("gemm")) == set(gemms(1, 2))


def test_ctrl_c_ends_a_run_as_the_budget_does(tmp_path: Path) -> None:
    bench = FakeBench(Clock(), elementwise=KeyboardInterrupt())
    cases = [*gemms(1), Case("elementwise", (2, 1)), *gemms(2)]
    ledger, summary = run(tmp_path, bench, cases)
    assert (summary.interrupted, summary.tried, summary.unreached) == (True, 1, 2)
    assert list(ledger.outcomes) == gemms(1)


def test_clock_and_temperature_and_a_probe_are_kept_over_the_run(tmp_path: Path) -> None:
    bench = FakeBench(Clock(), gemm=1.0)
    ledger, summary = run(tmp_path, bench, gemms(*range(1, 21)))
    assert summary.spent_s >= 100
    assert len(ledger.states) > len(ledger.probes) >= 4
    found = manifest(ledger, 0)
    assert found["probe"]["slowest_over_fastest"] == 1.0
    temperature = found["device_state"]["temperature_c"]
    assert temperature["least"] < temperature["median"] < temperature["most"]


def test_the_time_left_is_the_pace_so_far_within_the_budget(tmp_path: Path) -> None:
    seen: list[Progress] = []
    bench = FakeBench(Clock(), elementwise=1.0)
    cases = [Case("elementwise", (2, n)) for n in (1, 2, 3, 4)]
    run(tmp_path, bench, cases, budget_s=1000.0, watch=seen.append)
    assert [(p.done, p.total) for p in seen] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert [p.left_s for p in seen] == pytest.approx([1000.0, 21.0, 14.0, 7.0])
