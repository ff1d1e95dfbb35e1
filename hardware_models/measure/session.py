"""A measurement within a time budget: shape after shape, each kept as soon as it is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.measure.bench import Bench
from dynosim.hardware_models.measure.case import Case, Outcome, Skipped, Timing, Unsupported
from dynosim.hardware_models.measure.ledger import Ledger
from dynosim.hardware_models.measure.timing import Rules, fastest, named, settle

Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """``budget_s`` ends the run; a probe and the device's state are taken every so often."""

    budget_s: float
    rules: Rules = field(default_factory=Rules)
    state_every_s: float = 5.0
    probe_every_s: float = 30.0


@dataclass(frozen=True)
class Progress:
    """How far a measurement is, for whoever watches."""

    done: int
    total: int
    spent_s: float
    left_s: float
    now: Case


@dataclass(frozen=True)
class Summary:
    """What a run did, in shapes: tried now, found in the ledger, without seconds (of both), and
    not reached within the time or before Ctrl-C."""

    tried: int
    resumed: int
    skipped: int
    unreached: int
    spent_s: float
    interrupted: bool


def measure(
    cases: Sequence[Case],
    bench: Bench,
    ledger: Ledger,
    limits: Limits,
    *,
    now: Clock = time.perf_counter,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Summary:
    """Measures the cases that ``ledger`` lacks, in order, until the budget is spent.

    Ctrl-C ends it as the budget does. Raises UserError where the device stops answering; what was
    measured is in the ledger.
    """
    start, before = now(), len(ledger.outcomes.keys() & set(cases))
    interrupted = False
    try:
        _go_through(cases, bench, ledger, limits, now, watch)
    except KeyboardInterrupt:
        interrupted = True
    done = [case for case in cases if case in ledger.outcomes]
    timed = [case for case in done if isinstance(ledger.outcomes[case], Timing)]
    return Summary(
        tried=len(done) - before,
        resumed=before,
        skipped=len(done) - len(timed),
        unreached=len(cases) - len(done),
        spent_s=now() - start,
        interrupted=interrupted,
    )


def _go_through(
    cases: Sequence[Case],
    bench: Bench,
    ledger: Ledger,
    limits: Limits,
    now: Clock,
    watch: Callable[[Progress], None],
) -> None:
    start = now()
    todo = [case for case in cases if case not in ledger.outcomes]
    minder = _Minder(bench, ledger, limits, now, probe=_probe(cases))
    for reached, case in enumerate(todo):
        spent = now() - start
        if spent >= limits.budget_s:
            break
        left = _left_s(spent, reached, len(todo), limits.budget_s)
        watch(Progress(len(cases) - len(todo) + reached, len(cases), spent, left, case))
        minder.mind()
        ledger.record(case, _outcome(case, bench, limits.rules, now))
        _check_device(case, bench, ledger)
    if todo:
        minder.mind(last=True)


def _left_s(spent_s: float, reached: int, total: int, budget_s: float) -> float:
    """Returns the seconds still to go, at the pace so far and within the budget."""
    left = budget_s - spent_s
    return min(left, spent_s / reached * (total - reached)) if reached else left


OP_FAILED = (RuntimeError, ValueError, TypeError)
"""What PyTorch raises where a device or version has no such kernel (``NotImplementedError`` is the
first's child). The reason goes into the ledger and the report: one op that fails must not cost the
others of a rented hour."""


def _outcome(case: Case, bench: Bench, rules: Rules, now: Clock) -> Outcome:
    try:
        kernels = bench.kernels(case)
    except Unsupported as reason:
        return Skipped(str(reason))
    except OP_FAILED as error:
        return Skipped(_first_line(error))
    timings, failures = [], []
    for kernel in kernels:
        try:
            timings.append(named(settle(kernel.sample, rules, now), kernel.name))
        except OP_FAILED as error:
            failures.append(f"{kernel.name}: {_first_line(error)}")
    return fastest(timings) if timings else Skipped("; ".join(failures) or "no kernel")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _check_device(case: Case, bench: Bench, ledger: Ledger) -> None:
    outcome = ledger.outcomes[case]
    if isinstance(outcome, Skipped) and not bench.is_well():
        raise UserError(
            f"the device stopped answering at {case.label}: {outcome.reason}",
            where=str(ledger.path),
            hint="run the command again: it goes on after that shape, with all before it kept",
        )


def _probe(cases: Sequence[Case]) -> Case | None:
    """Returns the shape whose time is followed over the run: the middle GEMM, as good as any."""
    gemms = [case for case in cases if case.family == "gemm"]
    return gemms[len(gemms) // 2] if gemms else None


class _Minder:
    """Takes the device's state and the probe when they are due."""

    def __init__(
        self, bench: Bench, ledger: Ledger, limits: Limits, now: Clock, probe: Case | None
    ) -> None:
        self.bench, self.ledger, self.limits, self.now, self.probe = (
            *(bench, ledger, limits, now),
            probe,
        )
        self.state_s = self.probe_s = -float("inf")

    def mind(self, last: bool = False) -> None:
        now = self.now()
        if last or now - self.state_s >= self.limits.state_every_s:
            self.state_s = now
            state = self.bench.state()
            if state is not None:
                self.ledger.note("state", dict(state))
        if self.probe and (last or now - self.probe_s >= self.limits.probe_every_s):
            self.probe_s = now
            outcome = _outcome(self.probe, self.bench, self.limits.rules, self.now)
            if isinstance(outcome, Timing):
                self.ledger.note("probe", {"at": time.time(), "median_s": outcome.median_s})
