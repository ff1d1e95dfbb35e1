"""A timer of ranks in lock step, simple enough to check by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from affine_timer import AffineTimer
from dynosim.hardware_models.timing.data_parallel import RankRun, slowest


@dataclass(frozen=True)
class AffineGroupTimer:
    """step = max over ranks of ``own`` + ``joint_base_s`` + ``joint_token_s`` x tokens of all.

    Every rank brings as many tokens as the largest batch has.
    """

    ranks: int
    own: AffineTimer = field(default_factory=AffineTimer)
    joint_base_s: float = 0.003
    joint_token_s: float = 0.0001

    def run(self, busy: Sequence[RankRun], /) -> tuple[float, float, int]:
        steps = min(r.steps for r in busy) if all(r.decodes_only for r in busy) else 1
        first_s, growth_s, steps = slowest([(r.own_s, r.growth_s) for r in busy], steps)
        tokens = self.ranks * max(r.new_tokens for r in busy)
        return first_s + self.joint_base_s + self.joint_token_s * tokens, growth_s, steps
