"""A load on a virtual clock that only the engine's steps move."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, cycle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.turns import Turns
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.stepped.clocks import Probed, Replayed, Reported, Stopwatch
from dynosim.verification.stepped.engine import EngineStep, Work
from dynosim.verification.stepped.parity import first_difference, replayed
from dynosim.verification.stepped.run import MOST_IDLE_STEPS, SteppedRun, run_stepped
from dynosim.verification.stepped.simulated import SimulatedEngine
from dynosim.verification.stepped.step_record import read_step_log, write_step_log
from scripted_engine import ScriptedEngine

OWN = Reported("wall")


def plan_of(
    *lengths: tuple[int, int],
    send_s: tuple[float, ...] | None = None,
    slots: int | None = None,
    warmup: int = 0,
) -> LoadPlan:
    return LoadPlan(
        prompts=tuple(range(tokens) for tokens, _ in lengths),
        output_tokens=tuple(answer for _, answer in lengths),
        send_s=send_s,
        max_concurrency=slots,
        warmup=warmup,
    )


def token_times(run: SteppedRun) -> list[list[float]]:
    return [list(request.token_s) for request in run.observed.requests]


# --- who is sent when -------------------------------------------------------------------------


def test_an_open_loop_by_hand() -> None:
    # One prompt at 0 takes two seconds; the second arrives meanwhile and waits for the step's
    # end; the clock then jumps over the pause before the third.
    plan = plan_of((3, 2), (4, 1), (5, 1), send_s=(0.0, 1.0, 20.0))
    run = run_stepped(plan, ScriptedEngine(), OWN)
    assert token_times(run) == [[2.0, 4.0], [4.0], [22.0]]
    assert [request.sent_s for request in run.observed.requests] == [0.0, 1.0, 20.0]
    assert [request.planned_s for request in run.observed.requests] == [0.0, 1.0, 20.0]
    assert run.observed.duration_s == 22.0
    assert run.observed.facts["kv_cache_tokens"] == 1024


def test_a_closed_loop_sends_when_a_slot_becomes_free() -> None:
    plan = plan_of((3, 1), (3, 3), (3, 1), slots=2)
    run = run_stepped(plan, ScriptedEngine(), OWN)
    assert [request.planned_s for request in run.observed.requests] == [0.0, 0.0, 3.0]
    assert token_times(run) == [[3.0], [3.0, 5.0, 6.0], [5.0]]


def test_with_both_a_time_and_slots_a_request_waits_for_the_later() -> None:
    plan = plan_of((3, 1), (3, 1), (3, 1), send_s=(0.0, 1.0, 9.0), slots=1)
    run = run_stepped(plan, ScriptedEngine(), OWN)
    assert [request.planned_s for request in run.observed.requests] == [0.0, 2.0, 9.0]


def test_a_turn_is_sent_when_the_answer_before_it_was_read_and_thought_about() -> None:
    # The first two at once take three seconds, and the second one's answer a step more.
    turns = Turns.chained(np.array([-1, -1, 0, 1]), np.array([0.0, 0.0, 10.0, 0.5]))
    plan = plan_of((3, 1), (3, 2), (3, 1), (3, 1), send_s=(0.0, 0.0, 0.0, 9.0))
    run = run_stepped(replace(plan, turns=turns), ScriptedEngine(), OWN)
    assert [request.sent_s for request in run.observed.requests] == [0.0, 0.0, 13.0, 9.0]
    assert token_times(run) == [[3.0], [3.0, 4.0], [15.0], [11.0]]


def test_priorities_are_refused() -> None:
    plan = replace(plan_of((3, 1), slots=1), priority=(1,))
    with pytest.raises(UserError, match="no priorities"):
        run_stepped(plan, ScriptedEngine(), OWN)


def test_the_warm_up_is_over_before_time_starts_and_is_not_measured() -> None:
    engine = ScriptedEngine()
    run = run_stepped(plan_of((3, 4), (4, 1), send_s=(0.0, 0.0), warmup=1), engine, OWN)
    assert [request.index for request in run.observed.requests] == [1]
    assert token_times(run) == [[2.0]]
    assert len(run.warmup_steps) == 4
    assert engine.forgotten == 1, "before the warm-up, not after it"


def test_the_step_log_tells_decodes_from_prompts() -> None:
    run = run_stepped(plan_of((3, 2), (4, 1), send_s=(0.0, 1.0)), ScriptedEngine(), OWN)
    last = run.steps[-1]
    assert last.decodes == (Work(0, 1, 3),)
    assert last.chunks == (Work(1, 4, 0),)
    assert (last.tokens, last.chunk_tokens) == (5, 4)
    assert last.decode_context_tokens == 4, "the new token attends to itself too"
    assert last.chunk_attention == 1 + 2 + 3 + 4
    assert (last.start_s, last.cost_s) == (2.0, 2.0)


def test_an_engine_that_is_stuck_ends_the_run() -> None:
    class Stuck(ScriptedEngine):
        def step(self) -> EngineStep:
            return EngineStep(work=(), new_tokens={}, own_s=0.1)

    with pytest.raises(UserError, match=f"nothing for {MOST_IDLE_STEPS} steps with 1 requests"):
        run_stepped(plan_of((3, 2), slots=1), Stuck(), OWN)


# --- clocks -----------------------------------------------------------------------------------


def test_a_stopwatch_takes_the_difference_of_its_readings() -> None:
    readings = count(0.0, 0.25)
    run = run_stepped(plan_of((3, 2), slots=1), ScriptedEngine(), Stopwatch("x", readings.__next__))
    assert token_times(run) == [[0.25, 0.5]]
    assert run.observed.clock == "x"


class Machine:
    """A clock whose seconds pass only as work is done on it, at a speed that changes."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slowness = 1.0

    def work(self, seconds: float) -> None:
        self.now_s += seconds * self.slowness

    def clock(self) -> Stopwatch:
        return Stopwatch("machine", lambda: self.now_s)


def test_the_probe_takes_out_how_fast_the_machine_is() -> None:
    machine = Machine()
    clock = Probed(machine.clock(), lambda: machine.work(0.002))
    assert clock.reference_s == pytest.approx(0.002)

    def step() -> EngineStep:
        machine.work(0.050)
        return EngineStep(work=(), new_tokens={})

    clock.begin()
    assert clock.timed(step)[1] == pytest.approx(0.050)
    machine.slowness = 1.6
    costs = [clock.timed(step)[1] for _ in range(12)]
    assert costs[-1] == pytest.approx(0.050), "once the window has only slow probes"
    assert clock.facts()["probe_drift"] == pytest.approx(0.6)
    clock.begin()
    assert clock.facts()["probe_drift"] == pytest.approx(0.0), "noted anew for each run"


def test_a_run_on_a_machine_that_drifts_says_so() -> None:
    machine = Machine()
    speeds = cycle([1.0] * 12 + [2.0] * 12)

    class Drifting(ScriptedEngine):
        def step(self) -> EngineStep:
            machine.slowness = next(speeds)
            machine.work(0.01)
            return super().step()

    clock = Probed(machine.clock(), lambda: machine.work(0.002))
    run = run_stepped(plan_of((3, 40), slots=1), Drifting(), clock)
    assert run.observed.clock == "machine, probed"
    assert run.observed.notes == (
        "the machine's speed changed by 100% during the run, by the probe",
    )


# --- files ------------------------------------------------------------------------------------


def test_a_step_log_reads_back_as_it_was_written(tmp_path: Path) -> None:
    run = run_stepped(plan_of((3, 2), (4, 3), slots=1), ScriptedEngine(), OWN)
    path = tmp_path / "steps.jsonl.gz"
    write_step_log(path, run.steps, {"clock": "wall"})
    assert read_step_log(path) == ({"clock": "wall"}, run.steps)
    before = path.read_bytes()
    write_step_log(path, run.steps, {"clock": "wall"})
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no step log: its first line lacks"),
        ('{"format": "another"}\n', "no step log: its first line lacks"),
        ('{"format": "dynosim step log 1"}\n[1, 2]\n', ":2: no step"),
        ('{"format": "dynosim step log 1"}\n[1,\n', ":2: not JSON"),
    ],
)
def test_what_is_no_step_log_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    import gzip

    path = tmp_path / "steps.jsonl.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(UserError, match=message):
        read_step_log(path)


def test_a_file_that_is_not_even_gzipped_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl.gz"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match="no step log"):
        read_step_log(path)


# --- the simulator as an engine ---------------------------------------------------------------

LIMITS = EngineLimits(max_num_seqs=4, max_num_batched_tokens=64, block_size=8, max_run=1)
LENGTHS = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 30)), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(lengths=LENGTHS, gaps=st.lists(st.floats(0.0, 0.05), min_size=12, max_size=12))
def test_the_simulator_driven_step_by_step_is_the_simulator(
    lengths: list[tuple[int, int]], gaps: list[float]
) -> None:
    sent_s = np.cumsum(gaps[: len(lengths)])
    plan = LoadPlan(
        # No prompt shares anything with another.
        prompts=tuple(range(i * 1000, i * 1000 + n) for i, (n, _) in enumerate(lengths)),
        output_tokens=tuple(answer for _, answer in lengths),
        send_s=tuple(sent_s.tolist()),
        max_concurrency=None,
    )
    engine = SimulatedEngine(AffineTimer(), LIMITS, num_blocks=20)
    run = run_stepped(plan, engine, OWN)
    n = len(lengths)
    workload = Workload(
        name="same",
        arrival_s=sent_s,
        input_tokens=np.asarray([a for a, _ in lengths]),
        output_tokens=np.asarray([b for _, b in lengths]),
        prefix_ids=np.zeros(0, dtype=np.int64),
        prefix_offsets=np.zeros(n + 1, dtype=np.int64),
        prefix_block_tokens=8,
    ).check()
    spec = ClusterSpec(timer=AffineTimer(), limits=LIMITS, num_blocks=20, max_model_len=4096)
    simulated = run_cluster(spec, workload)
    for request in run.observed.requests:
        np.testing.assert_allclose(
            request.token_s, simulated.token_times_s(request.index), rtol=1e-9
        )


def test_shared_prefixes_are_found_by_their_tokens() -> None:
    same, other = list(range(32)), list(range(100, 132))
    plan = LoadPlan(
        prompts=(same, [*same, 7, 8], [*other]),
        output_tokens=(1, 1, 1),
        send_s=None,
        max_concurrency=1,
    )
    run = run_stepped(plan, SimulatedEngine(AffineTimer(), LIMITS, num_blocks=40), OWN)
    assert [step.chunks[0].context_tokens for step in run.steps] == [0, 32, 0]


def test_runs_on_one_engine_do_not_warm_each_other() -> None:
    engine = SimulatedEngine(AffineTimer(), LIMITS, num_blocks=40)
    plan = plan_of((40, 3), (40, 3), slots=1)
    first, second = (run_stepped(plan, engine, OWN) for _ in range(2))
    assert first_difference(first, second) is None
    assert first.steps[0].chunk_tokens == 40


def test_the_first_difference_of_two_engines_is_told_with_its_step() -> None:
    plan = plan_of((20, 30), (40, 30), (30, 30), slots=3)
    small, large = (SimulatedEngine(AffineTimer(), LIMITS, num_blocks=n) for n in (16, 40))
    measured = run_stepped(plan, small, OWN)
    assert any(step.preempted for step in measured.steps), "the small cache makes the difference"
    assert first_difference(measured, replayed(plan, small, measured)) is None
    difference = first_difference(measured, replayed(plan, large, measured))
    assert difference is not None
    assert difference.startswith("step ")


def test_costs_that_were_measured_are_the_clock_of_another_engine() -> None:
    run = run_stepped(plan_of((3, 3), slots=1), ScriptedEngine(), Replayed([0.5, 0.25]))
    assert token_times(run) == [[0.5, 0.75, 0.75]], "no cost, no time, once they are used up"
