"""Measures the picks on a target, turn by turn, and keeps each measurement at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dynosim.hardware_models.errors import UserError
from dynosim.sim.metrics import Metrics
from dynosim.verification.choice import Pick
from dynosim.verification.folder import VerificationFolder
from dynosim.verification.load.measured import measured_run
from dynosim.verification.load.plan import WARM_UP
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.measured import Measured, metrics_of_run, with_derived
from dynosim.verification.observed import ObservedRequest, ObservedRun
from dynosim.verification.prepared import Prepared
from dynosim.verification.schedule import Turn, rounds, stretches
from dynosim.verification.target import EngineFailed, Target


class Listener(Protocol):
    """Told of every turn as it begins and ends; ``failure`` says why there is no measurement."""

    def begins(self, turn: Turn) -> None: ...

    def ended(self, turn: Turn, failure: str | None = None) -> None: ...


class Silent:
    """Reports nothing."""

    def begins(self, turn: Turn) -> None:
        pass

    def ended(self, turn: Turn, failure: str | None = None) -> None:
        pass


@dataclass(eq=False)
class _Seen:
    """What is known of one pick so far."""

    runs: list[ObservedRun] = field(default_factory=list)
    failure: str | None = None
    has_died: bool = False


def measure(
    prepared: Prepared,
    folder: VerificationFolder,
    target_for: Callable[[Turn], Target],
    *,
    repeats: int = 3,
    warmup: int = WARM_UP,
    listener: Listener | None = None,
) -> list[Measured]:
    """Returns what was measured of every pick, in rounds; a pick that fails is left out of later
    ones.

    Measurements that the folder holds already are not repeated. Raises UserError, the first one,
    where no pick could be measured.
    """
    listener = listener or Silent()
    seen = {pick.number: _Seen() for pick in prepared.picks}
    for stretch in stretches(rounds(prepared.picks, repeats)):
        one = seen[stretch[0].pick.number]
        missing = []
        for turn in stretch:
            if (held := folder.observed(turn)) is not None:
                one.runs.append(held)
                listener.ended(turn)
            else:
                missing.append(turn)
        if missing and one.failure is None:
            _measure_turns(prepared, folder, target_for(missing[0]), missing, one, warmup, listener)
    failures = [s.failure for s in seen.values() if s.failure is not None]
    if failures and not any(s.runs for s in seen.values()):
        raise UserError(f"no pick could be measured\n{failures[0]}")
    return [_measured(prepared, pick, seen[pick.number], warmup) for pick in prepared.picks]


def _measure_turns(
    prepared: Prepared,
    folder: VerificationFolder,
    target: Target,
    turns: Sequence[Turn],
    seen: _Seen,
    warmup: int,
    listener: Listener,
) -> None:
    candidate = prepared.candidate(turns[0].pick)
    left = list(turns)
    try:
        listener.begins(left[0])
        with target.run(candidate) as engine:
            while left:
                plan = prepared.plan(left[0].pick, left[0].repeat, warmup)
                run = engine.measure(plan)
                folder.keep(left[0], run, plan, candidate.model)
                seen.runs.append(run)
                listener.ended(left.pop(0))
    except UserError as error:
        seen.failure, seen.has_died = str(error), isinstance(error, EngineFailed)
        for turn in left:
            listener.ended(turn, seen.failure)


def _measured(prepared: Prepared, pick: Pick, seen: _Seen, warmup: int) -> Measured:
    if not seen.runs:
        return Measured(pick=pick, failure=seen.failure, has_died=seen.has_died)
    plan = prepared.plan(pick, 1, warmup)
    notes = [note for run in seen.runs for note in run.notes]
    if seen.failure is not None:
        notes.append(f"a later repeat failed: {seen.failure}")
    limits_ms = prepared.candidate(pick).goodput_ms
    return Measured(
        pick=pick,
        repeats=tuple(
            with_derived(metrics_of(run, plan, limits_ms), pick.trial) for run in seen.runs
        ),
        facts=seen.runs[-1].facts,
        notes=tuple(dict.fromkeys(notes)),
    )


def metrics_of(run: ObservedRun, plan: LoadPlan, limits_ms: Mapping[str, float]) -> Metrics:
    """Returns the metrics of one measurement, with its goodput under ``limits_ms`` (by kind)."""
    found = measured_run(run, plan)
    metrics = metrics_of_run(found)
    if limits_ms and (rate := metrics.get("request_throughput")):
        good = sum(_is_good(request, limits_ms) for request in run.requests)
        metrics["slo_attainment"] = good / len(run.requests)
        metrics["request_goodput"] = rate * good / found.num_prompts
    return metrics


def _is_good(request: ObservedRequest, limits_ms: Mapping[str, float]) -> bool:
    if request.error is not None or not request.token_s:
        return False
    first_s, last_s = request.token_s[0], request.token_s[-1]
    found_ms = {
        "ttft": (first_s - request.sent_s) * 1e3,
        "e2el": (last_s - request.sent_s) * 1e3,
        # A single-token answer has no TPOT to miss.
        "tpot": (last_s - first_s) * 1e3 / max(len(request.token_s) - 1, 1),
    }
    return all(found_ms[kind] <= limit for kind, limit in limits_ms.items())
