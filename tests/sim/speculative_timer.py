"""The hand-checkable timer for engines that speculate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from affine_timer import AffineTimer
from dynosim.hardware_models.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class SpeculativeAffineTimer(AffineTimer):
    """Decode-only steps of ``query_tokens`` tokens a sequence, at the same rates."""

    query_tokens: int = 1

    def decode_steps_s(self, num_decode: int, context_tokens: IntArray, /) -> FloatArray:
        tokens = num_decode * self.query_tokens
        steps = (self.step_s(tokens, tokens, 0.0, num_decode, c) for c in context_tokens.tolist())
        return np.fromiter(steps, dtype=np.float64, count=len(context_tokens))
