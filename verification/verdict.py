"""Confirmed, changed or inconclusive: what measurements say of the run's recommendation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dynosim.search.metric import METRICS
from dynosim.verification.comparison import Row
from dynosim.verification.measured import DRIFT, Measured
from dynosim.verification.preference import CHEAPEST, Preference
from dynosim.verification.regret import Regret
from dynosim.verification.rescore import Rescored

Word = Literal["confirmed", "changed", "inconclusive"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict and its reasons, each a sentence. ``winner`` is the trial to take now."""

    word: Word
    reasons: tuple[str, ...]
    winner: int


def verdict_of(
    measured: Sequence[Measured],
    rows: Sequence[Sequence[Row]],
    preference: Preference,
    regret: Regret | None,
    rescored: Rescored | None,
) -> Verdict:
    """Returns what to make of the measurements; ``rows`` are the comparisons, pick by pick.

    - changed: the recommended trial's engine failed, or it breaks a limit, or another one that was
      measured is better by more than repeats differ;
    - inconclusive: what decides drifts by more than DRIFT, the recommended trial or anything beside
      it was not measured, or a trial nobody measured now seems better;
    - confirmed: else.
    """
    own = next((m for m in measured if m.pick.number == preference.recommended.number), None)
    name = f"trial {preference.recommended.number}"
    if own is None:
        reason = f"{name}, the run's {preference.name}, was not among those measured"
        return Verdict(word="inconclusive", reasons=(reason,), winner=preference.recommended.number)
    others = [m for m in measured if m and m is not own]
    if own.failure is not None:
        return _without(own, others, preference)
    drifts = tuple(_drifts(measured, preference, regret))
    if drifts:
        return Verdict(word="inconclusive", reasons=drifts, winner=own.pick.number)
    if regret is None:
        reason = f"{name} has no measured figure of what it was recommended by"
        return Verdict(word="inconclusive", reasons=(reason,), winner=own.pick.number)
    if regret.best != own.pick.number and not regret.is_noise:
        return Verdict(
            word="changed", reasons=_changed(own, preference, regret), winner=regret.best
        )
    if not others:
        return _alone(own, rows)
    if rescored is not None and (doubt := _unmeasured(measured, preference, regret, rescored)):
        return Verdict(word="inconclusive", reasons=(doubt,), winner=own.pick.number)
    return Verdict(
        word="confirmed",
        reasons=tuple(_confirmed(own, others, preference, regret, rescored)),
        winner=own.pick.number,
    )


def _without(own: Measured, others: Sequence[Measured], preference: Preference) -> Verdict:
    """Returns the verdict where the recommended trial was not measured."""
    words = "does not run" if own.has_died else "could not be measured"
    failure = (own.failure or "").splitlines()[0]
    reason = f"trial {own.pick.number}, the run's {preference.name}, {words}: {failure}"
    kept = [m for m in others if not preference.broken(m.under_run_load)]
    scored = [m for m in kept if not math.isnan(preference.score(m.metrics))]
    if not scored or not own.has_died:
        return Verdict(word="inconclusive", reasons=(reason,), winner=own.pick.number)
    best = max(scored, key=lambda m: preference.score(m.metrics))
    words = f"of those that ran, trial {best.pick.number} is best"
    return Verdict(word="changed", reasons=(reason, words), winner=best.pick.number)


def _drifts(
    measured: Sequence[Measured], preference: Preference, regret: Regret | None
) -> Iterator[str]:
    """Yields a sentence for each deciding metric in which the pick or its best rival drifts."""
    deciding = {preference.recommended.number} | ({regret.best} if regret else set())
    for one in measured:
        if one.pick.number not in deciding:
            continue
        for metric in preference.deciding:
            if (spread := one.spread(metric)) > DRIFT:
                yield (
                    f"repeats of trial {one.pick.number} differ by {spread:.0%} in "
                    f"{METRICS[metric].label} (limit {DRIFT:.0%}): measure on a quieter machine, "
                    "or longer"
                )


def _changed(own: Measured, preference: Preference, regret: Regret) -> tuple[str, ...]:
    found, broken = own.under_run_load, preference.broken(own.under_run_load)
    how = "was measured" if own.pick.searched is None else "is, by what was measured,"
    reasons = [
        f"trial {own.pick.number} {how} at {found[x.metric]:.4g}; the limit is {x}" for x in broken
    ]
    if broken:
        reasons.append(f"trial {regret.best} keeps every limit that was measured")
    else:
        reasons.append(
            f"trial {regret.best} was measured {regret.share:.1%} ahead of trial {regret.pick}; "
            f"repeats differ by {regret.noise:.1%}"
        )
    return tuple(reasons)


def _alone(own: Measured, rows: Sequence[Sequence[Row]]) -> Verdict:
    """Returns the verdict of the recommended trial without another: inside its intervals or not."""
    name = own.pick.number
    known = [r for pick_rows in rows for r in pick_rows if r.is_inside is not None]
    outside = [METRICS[r.metric].label for r in known if not r.is_inside]
    if known and not outside:
        reason = f"trial {name} alone was measured, inside of all {len(known)} predicted intervals"
        return Verdict(word="confirmed", reasons=(reason,), winner=name)
    words = f", outside of the predicted interval in {', '.join(outside)}" if outside else ""
    reason = f"trial {name} alone was measured{words}: no order can be judged"
    return Verdict(word="inconclusive", reasons=(reason,), winner=name)


def _unmeasured(
    measured: Sequence[Measured], preference: Preference, regret: Regret, rescored: Rescored
) -> str:
    """Returns why a trial that nobody measured leaves the matter open; "" where none does."""
    noise = max(m.score_spread(preference) for m in measured if m)
    winner = rescored.winner
    if winner is None or winner in {m.pick.number for m in measured}:
        return ""
    if not rescored.lead > max(noise, regret.noise):
        return ""
    return (
        f"with what was measured, trial {winner} would be {rescored.lead:.1%} ahead of trial "
        f"{regret.pick}, and it was not measured: give it to --trials"
    )


def _confirmed(
    own: Measured,
    others: Sequence[Measured],
    preference: Preference,
    regret: Regret,
    rescored: Rescored | None,
) -> Iterator[str]:
    if preference.name == CHEAPEST:
        yield (
            f"trial {own.pick.number} keeps the limits that were measured, and no other measured "
            "trial is cheaper"
        )
    elif regret.best == own.pick.number:
        yield f"trial {own.pick.number} is best of the {len(others) + 1} measured"
    else:
        yield (
            f"trial {regret.best} is {regret.share:.1%} ahead of trial {own.pick.number}, which is "
            f"no more than repeats differ by ({regret.noise:.1%})"
        )
    if rescored is not None and rescored.winner == own.pick.number:
        yield "it stays the choice when the frontier is scored anew with what was measured"
