"""What following the prediction costs, by what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dynosim.verification.measured import Measured
from dynosim.verification.preference import Preference
from dynosim.verification.ranking import joint_noise


@dataclass(frozen=True, kw_only=True)
class Regret:
    """The recommended pick against the best of the measured ones, on the run's preference.

    ``share`` is what the pick falls short of the best, 0 where it is the best itself, 1 where it
    breaks a limit (``is_broken``) that another keeps. ``noise`` is that of the difference, as a
    share.
    """

    pick: int
    best: int
    share: float
    noise: float
    is_broken: bool = False

    @property
    def is_noise(self) -> bool:
        """Whether repeats differ by as much."""
        return self.share <= self.noise and not self.is_broken


def regret_of(measured: Sequence[Measured], preference: Preference) -> Regret | None:
    """Returns the regret of the recommended pick, of those measured to keep the limits.

    None where it was not measured, or has no score.
    """
    scored = {
        m.pick.number: m for m in measured if m and not math.isnan(preference.score(m.metrics))
    }
    own = scored.get(preference.recommended.number)
    if own is None:
        return None
    kept = [m for m in scored.values() if not preference.broken(m.under_run_load)]
    best = max(kept, key=lambda m: (preference.score(m.metrics), m is own), default=own)
    noise = joint_noise(own.score_spread(preference), best.score_spread(preference))
    lost = preference.score(best.metrics) - preference.score(own.metrics)
    is_broken = bool(kept) and bool(preference.broken(own.under_run_load))
    return Regret(
        pick=own.pick.number,
        best=best.pick.number,
        share=1.0 if is_broken else -math.expm1(-lost),
        noise=0.0 if best is own else -math.expm1(-noise),
        is_broken=is_broken,
    )
