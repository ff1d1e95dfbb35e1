"""A load on an engine, on a clock that only the engine's steps move."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.turns import Waiting
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.observed import ObservedRequest, ObservedRun
from dynosim.verification.stepped.clocks import Clock
from dynosim.verification.stepped.engine import EngineStep, StepEngine, Work
from dynosim.verification.stepped.step_record import StepRecord

MOST_IDLE_STEPS = 100
"""Steps in a row that may do nothing before the engine counts as stuck."""

DRIFT = 0.15
"""A probe that drifts more says that the machine was too busy for this run to tell much."""


@dataclass(frozen=True, kw_only=True)
class SteppedRun:
    """What was seen of every request, and every step behind it."""

    observed: ObservedRun
    steps: tuple[StepRecord, ...]
    warmup_steps: tuple[StepRecord, ...] = ()


def run_stepped(plan: LoadPlan, engine: StepEngine, clock: Clock) -> SteppedRun:
    """Sends a load and returns what was seen, with the steps that made it.

    Time is virtual: it starts at 0 when the warm-up is over, each step moves it by its cost, and it
    jumps to the next arrival where nothing is left to do. A request is sent at its time or, with
    ``max_concurrency``, when a slot is free, and enters between two steps. The engine's prefix
    cache is emptied before the warm-up.

    Raises UserError where the engine stops making progress, and for a plan with priorities.
    """
    if plan.priority is not None:
        raise UserError("engines that are stepped take no priorities", where="workload: priority")
    engine.forget()
    slots = plan.max_concurrency or max(plan.warmup, 1)
    warmup_plan = replace(plan, send_s=None, max_concurrency=slots, turns=None)
    warmup = _Run(warmup_plan, engine, clock, range(plan.warmup)).finished()
    clock.begin()
    run = _Run(plan, engine, clock, range(plan.warmup, len(plan))).finished()
    facts = {**engine.facts(), **clock.facts()}
    drift = clock.facts().get("probe_drift", 0.0)
    note = f"the machine's speed changed by {drift:.0%} during the run, by the probe"
    return SteppedRun(
        observed=ObservedRun(
            requests=tuple(run.requests()),
            duration_s=run.now_s,
            clock=clock.name,
            notes=(note,) if drift > DRIFT else (),
            facts=facts,
        ),
        steps=tuple(run.steps),
        warmup_steps=tuple(warmup.steps),
    )


class _Run:
    """The requests of one run, and the virtual clock."""

    def __init__(
        self, plan: LoadPlan, engine: StepEngine, clock: Clock, indices: Iterable[int]
    ) -> None:
        self.now_s = 0.0
        self.steps: list[StepRecord] = []
        self._plan = plan
        self._engine = engine
        self._clock = clock
        self._sender = _Sender(plan, indices)
        self._planned_s: dict[int, float] = {}
        self._token_s: dict[int, list[float]] = {}
        self._idle_steps = 0

    def finished(self) -> _Run:
        """Returns this run once every request has its answer."""
        sender = self._sender
        while (next_s := sender.next_s()) is not None or sender.in_flight:
            if not sender.in_flight:
                assert next_s is not None, "nothing is under way and nothing to come"
                self.now_s = max(self.now_s, next_s)
            for index, planned_s in sender.due(self.now_s):
                self._planned_s[index] = planned_s
                self._token_s[index] = []
                plan = self._plan
                self._engine.add(index, plan.prompts[index], plan.output_tokens[index])
            self._step()
        return self

    def _step(self) -> None:
        start_s = self.now_s
        done, cost_s = self._clock.timed(self._engine.step)
        self._check_progress(done)
        self.now_s += cost_s
        self.steps.append(self._record(done, start_s, cost_s))
        for index, count in done.new_tokens.items():
            self._token_s[index] += [self.now_s] * count
        for index in done.finished:
            self._sender.answered(index, self.now_s)

    def _check_progress(self, done: EngineStep) -> None:
        self._idle_steps = 0 if done.work or done.new_tokens else self._idle_steps + 1
        if self._idle_steps > MOST_IDLE_STEPS:
            raise UserError(
                f"the engine did nothing for {MOST_IDLE_STEPS} steps with "
                f"{self._sender.in_flight} requests unfinished",
                hint="does every prompt with its answer fit into its KV cache?",
            )

    def _record(self, done: EngineStep, start_s: float, cost_s: float) -> StepRecord:
        is_decode = [self._is_decode(work) for work in done.work]
        parts = list(zip(done.work, is_decode, strict=True))
        return StepRecord(
            start_s=start_s,
            cost_s=cost_s,
            decodes=tuple(work for work, decode in parts if decode),
            chunks=tuple(work for work, decode in parts if not decode),
            new_tokens=done.new_tokens,
            finished=done.finished,
            preempted=done.preempted,
        )

    def _is_decode(self, work: Work) -> bool:
        """Whether the only token not computed yet is the last of the answer so far."""
        emitted = len(self._token_s[work.request])
        known = len(self._plan.prompts[work.request]) + emitted
        return emitted > 0 and work.context_tokens == known - 1

    def requests(self) -> Iterator[ObservedRequest]:
        """Yields what was seen of every request, in the order of the plan."""
        for index, token_s in sorted(self._token_s.items()):
            asked = self._plan.output_tokens[index]
            short = f"ended after {len(token_s)} of {asked} tokens"
            yield ObservedRequest(
                index=index,
                planned_s=self._planned_s[index],
                sent_s=self._planned_s[index],
                token_s=token_s,
                input_tokens=len(self._plan.prompts[index]),
                error=None if len(token_s) == asked else short,
            )


class _Sender:
    """Which requests are to be sent when."""

    def __init__(self, plan: LoadPlan, indices: Iterable[int]) -> None:
        self.in_flight = 0
        self._send_s = plan.send_s
        indices = list(indices)
        self._turns = None if plan.turns is None else Waiting(plan.turns, indices)
        # When each is due that waits for no answer, and its number.
        self._coming = [(self._time_s(i), i) for i in indices if not self._waits(i)]
        heapify(self._coming)
        # When each free slot became free; None where there is one for every request.
        most = plan.max_concurrency
        self._slots_s = None if most is None else [0.0] * most

    def _time_s(self, index: int) -> float:
        return 0.0 if self._send_s is None else self._send_s[index]

    def _waits(self, index: int) -> bool:
        return self._turns is not None and self._turns.waits(index)

    def next_s(self) -> float | None:
        """Returns when the next request is due; None where none is, or no slot is free for it."""
        if not self._coming:
            return None
        time_s = self._coming[0][0]
        if self._slots_s is None:
            return time_s
        return max(time_s, self._slots_s[0]) if self._slots_s else None

    def due(self, now_s: float) -> Iterator[tuple[int, float]]:
        """Takes the requests that are due, with the time at which each was."""
        while (time_s := self.next_s()) is not None and time_s <= now_s:
            if self._slots_s is not None:
                heappop(self._slots_s)
            self.in_flight += 1
            yield heappop(self._coming)[1], time_s

    def answered(self, index: int, now_s: float) -> None:
        """Takes note that a request has its answer: a slot is free, and whoever waited may go."""
        self.in_flight -= 1
        if self._slots_s is not None:
            heappush(self._slots_s, now_s)
        for later, think_s in self._turns.answered(index) if self._turns else ():
            heappush(self._coming, (max(self._time_s(later), now_s + think_s), later))
