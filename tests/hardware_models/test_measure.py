"""A measurement without PyTorch: grids, statistics, the ledger, the budget and what is written."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim import cli
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.measure.bench import Kernel
from dynosim.hardware_models.measure.card import memory_bytes_s, peak_flop_s
from dynosim.hardware_models.measure.case import Case, Skipped, Timing, Unsupported
from dynosim.hardware_models.measure.compare import compare
from dynosim.hardware_models.measure.device_state import parsed_smi, state_reader
from dynosim.hardware_models.measure.families import FOR_PEOPLE
from dynosim.hardware_models.measure.grid import families, level, list_grids, plan, read_grid
from dynosim.hardware_models.measure.ledger import Ledger
from dynosim.hardware_models.measure.model_grid import for_model
from dynosim.hardware_models.measure.session import Limits, Progress, measure
from dynosim.hardware_models.measure.timing import (
    Rules,
    median,
    quantile,
    settle,
    spread,
    summarised,
)
from dynosim.hardware_models.measure.write import manifest, write_tables
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.hardware_models.timing.own_tables import OWN_FAMILY_KEYS, own_table, own_tables
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.hardware_models.timing.tables import load_table


class Clock:
    """A clock that only the fake kernels move."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class FakeBench:
    """Kernels that take ``seconds[family]`` by the clock (an exception there is raised)."""

    def __init__(self, clock: Clock, device: str = "Abacus", **seconds: Any) -> None:
        self.clock, self.device, self.seconds = clock, device, seconds
        self.asked: list[Case] = []
        self.well = True

    def origin(self) -> dict[str, Any]:
        return {"device": self.device, "torch": "2.9.0", "launch": "graph"}

    def kernels(self, case: Case) -> list[Kernel]:
        self.asked.append(case)
        takes = self.seconds.get(case.family, 1e-3)
        if isinstance(takes, Unsupported):
            raise takes
        options = takes if isinstance(takes, dict) else {"fake": takes}
        return [Kernel(name, self._sample(s)) for name, s in options.items()]

    def _sample(self, takes: Any) -> Any:
        def sample() -> float:
            if isinstance(takes, BaseException):
                raise takes
            self.clock.now_s += takes
            return float(takes)

        return sample

    def state(self) -> Mapping[str, Any]:
        return {"at": self.clock(), "sm_clock_mhz": 1980.0, "temperature_c": 40 + self.clock()}

    def is_well(self) -> bool:
        return self.well

    def close(self) -> None:
        return


def gemms(*m: int, dtype: str = "bfloat16") -> list[Case]:
    return [Case("gemm", (dtype, 4096, 4096, tokens)) for tokens in m]


def opened(tmp_path: Path, bench: FakeBench) -> Ledger:
    return Ledger.open(tmp_path / "ledger.jsonl", bench.origin())


def timed(median_s: float) -> Timing:
    return Timing(median_s, median_s, median_s, 5, 0.0, 0.0, 0.0, "fake")


# Grids


@pytest.mark.parametrize("name", list_grids())
def test_shipped_grids_name_only_what_can_be_measured_and_read(name: str) -> None:
    cases = plan(read_grid(name))
    assert {case.family for case in cases} <= set(families())
    assert len(cases) == len(set(cases))
    assert {case.family for case in cases} - set(FOR_PEOPLE) <= set(OWN_FAMILY_KEYS)


def test_every_family_of_the_grids_has_a_file_and_the_other_way_round() -> None:
    used = {family for name in list_grids() for family in read_grid(name)}
    assert used == set(families())


def test_an_axis_is_measured_at_its_ends_first_then_halved() -> None:
    assert [level(i, 5) for i in range(5)] == [0, 2, 1, 2, 0]
    assert [level(i, 9) for i in range(9)] == [0, 3, 2, 3, 1, 3, 2, 3, 0]
    assert [level(0, 1), level(0, 2), level(1, 2)] == [0, 0, 0]


def test_a_run_cut_short_still_spans_the_grid() -> None:
    """Rank 0 holds the ends of every running axis at every site."""
    cases = plan(read_grid("standard"), ops=["gemm"])
    ranks = [case.rank for case in cases]
    assert ranks == sorted(ranks)
    first = [case for case in cases if case.rank == 0]
    sites = {case.values[:3] for case in cases}
    m = [case.key["m"] for case in cases]
    assert {case.values for case in first} == {(*site, e) for site in sites for e in (1, max(m))}


def test_families_take_turns() -> None:
    cases = plan(read_grid("standard"))
    assert {case.family for case in cases[: len(families())]} == set(families())


def test_a_limit_on_a_product_leaves_out_what_is_beyond_it(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        "elementwise: {bytes_per_token: [2, 4], num_tokens: [1, 8], "
        "at_most: {bytes_per_token num_tokens: 16}}"
    )
    found = {case.values for case in plan(read_grid(str(grid)))}
    assert found == {(2, 1), (4, 1), (2, 8)}


def test_dtypes_asked_for_replace_the_grids() -> None:
    cases = plan(read_grid("standard"), dtypes=["float32", "fp8"])
    dtypes = {(c.family, v) for c in cases for k, v in c.key.items() if k.endswith("_dtype")}
    assert ("gemm", "fp8") in dtypes
    assert ("gemm", "float32") in dtypes
    assert {v for f, v in dtypes if f == "context_attention"} == {"float32"}
    assert {v for f, v in dtypes if f == "nccl"} == {"half"}


def test_only_fp8_leaves_attention_as_the_grid_has_it() -> None:
    cases = plan(read_grid("small"), ops=["context_attention"], dtypes=["fp8"])
    assert {case.key["attn_dtype"] for case in cases} == {"bfloat16"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gem: {m: [1]}", "unknown family 'gem'"),
        ("gemm: {m: [1], n k: [[1, 1]]}", "no values for gemm_dtype"),
        ("gemm: {q: [1]}", "unknown key column 'q'"),
        ("gemm: {gemm_dtype: [bfloat16], m: 1, n k: [[1, 1]]}", "allowed: a list"),
        ("gemm: {gemm_dtype: [bfloat16], m: [1.5], n k: [[1, 1]]}", "whole numbers"),
        ("gemm: {gemm_dtype: [bfloat16], m: [1], n k: [[1]]}", "allowed: rows of 2"),
        ("gemm: 3", "expected a mapping"),
    ],
)
def test_a_bad_grid_is_told_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text(text)
    with pytest.raises(UserError, match=r"grid\.yaml") as error:
        read_grid(str(grid))
    assert message in str(error.value)


def test_unknown_names_of_grids_and_ops_are_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match="nearest: standard"):
        read_grid("standart")
    with pytest.raises(UserError, match="nearest: gemm"):
        plan(read_grid("small"), ops=["gem"])


def test_a_model_narrows_the_grid_to_its_own_shapes() -> None:
    """Llama 3.1 8B at TP 2: 32/8 heads of 128, hidden 4096, intermediate 14336."""
    grid = for_model(read_grid("standard"), "meta-llama/Llama-3.1-8B", [2])
    cases = plan(grid, ops=["gemm", "generation_attention", "nccl", "elementwise"])
    sites = {(c.key["n"], c.key["k"]) for c in cases if c.family == "gemm"}
    assert {(3072, 4096), (4096, 2048), (14336, 4096), (4096, 7168), (64128, 4096)} == sites
    heads = {c.values[2:6] for c in cases if c.family == "generation_attention"}
    assert heads == {(128, 0, 4, 16)}
    assert {c.key["num_gpus"] for c in cases if c.family == "nccl"} == {2}
    moved = {c.key["bytes_per_token"] for c in cases if c.family == "elementwise"}
    assert 4 * 2 * 4096 in moved


def test_one_gpu_needs_no_all_reduce() -> None:
    assert "nccl" not in for_model(read_grid("standard"), "meta-llama/Llama-3.1-8B", [1])


# Statistics


def test_statistics_of_samples_by_hand() -> None:
    timing = summarised([1.0, 1.0, 2.0, 1.0, 4.0])
    assert timing.median_s == 1.0
    assert timing.samples == 5
    assert timing.outliers == pytest.approx(2 / 5)
    assert timing.p90_s == pytest.approx(2 + 0.6 * 2)
    assert timing.drift == pytest.approx((1.0 + 4.0) / 2 / 1.0 - 1.0)


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=40), st.floats(0, 1))
def test_quantiles_are_numpys(seconds: list[float], share: float) -> None:
    assert quantile(seconds, share) == pytest.approx(np.quantile(seconds, share))
    assert median(seconds) == pytest.approx(np.median(seconds))


def test_the_confidence_interval_of_a_median_holds_what_it_says() -> None:
    """Of many draws from one distribution, 95 % of the intervals hold its median (0 here)."""
    random = np.random.default_rng(1)
    draws = 1.0 + 0.1 * random.normal(size=(2000, 25))
    inside = [abs(median(d) - 1.0) <= 2 * spread(d) * median(d) for d in draws.tolist()]
    assert np.mean(inside) > 0.93
    assert spread([1.0] * 9) == 0.0


def test_a_steady_shape_takes_the_least_samples_after_the_warm_up() -> None:
    clock = Clock()
    taken: list[float] = []

    def sample() -> float:
        taken.append(clock())
        clock.now_s += 0.001
        return 0.001

    timing = settle(sample, Rules(warm_up=3, least=5), clock)
    assert (timing.samples, len(taken)) == (5, 8)
    assert timing.median_s == 0.001


def test_an_unsteady_shape_is_sampled_until_the_cap() -> None:
    clock, turn = Clock(), iter(range(10**6))

    def sample() -> float:
        clock.now_s += 0.010
        return 0.001 * (1 + next(turn) % 2)

    timing = settle(sample, Rules(warm_up=0, least=5, most=10**6, cap_s=0.2), clock)
    assert timing.samples == 20
    assert settle(sample, Rules(warm_up=0, most=7, cap_s=9.0), clock).samples == 7


def test_the_least_samples_are_taken_whatever_they_take() -> None:
    clock = Clock()

    def sample() -> float:
        clock.now_s += 60.0
        return 60.0

    assert settle(sample, Rules(warm_up=0, least=3), clock).samples == 3


def test_samples_that_get_faster_were_warm_up_and_are_taken_again() -> None:
    slow = iter([9.0, 9.0, 9.0, 9.0])

    def sample() -> float:
        return next(slow, 1.0)

    assert settle(sample, Rules(warm_up=0, least=9, most=9), Clock()).median_s == 1.0


# The ledger


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


# A run


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


# What is written


def small_ledger(tmp_path: Path, device: str) -> Ledger:
    """A ledger of the small grid at 1 us a call, and 1 ns a byte for copies."""
    bench = FakeBench(Clock(), device)
    ledger = opened(tmp_path, bench)
    for case in plan(read_grid("small")):
        key = case.key
        ledger.record(case, timed(1e-9 * key["bytes"] if case.family == "copy" else 1e-6))
    return ledger


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


# The command


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


# The device's state


def test_smi_figures_that_a_device_does_not_tell_are_left_out() -> None:
    found = parsed_smi("1980, 2619, 41, [N/A], 700.00\n")
    assert found == {
        "sm_clock_mhz": 1980.0,
        "memory_clock_mhz": 2619.0,
        "temperature_c": 41.0,
        "power_limit_w": 700.0,
    }


def test_a_cpu_tells_no_state() -> None:
    assert state_reader(None)() is None


def test_products_of_axes_are_all_there(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text("copy: [{op: [read], bytes: [4, 8]}, {op: [write], bytes: [4]}]")
    found = {case.values for case in plan(read_grid(str(grid)))}
    assert found == {*product(["read"], [4, 8]), ("write", 4)}


def test_the_format_is_documented_column_by_column() -> None:
    text = (Path(__file__).parents[2] / "docs" / "kernel-tables.md").read_text()
    words = set(text.replace("`", " ").replace(":", " ").replace(";", " ").split())
    for family in families():
        assert family in words or f"{family}.csv" in words
        if family not in FOR_PEOPLE:
            assert set(OWN_FAMILY_KEYS[family]) <= words, family
