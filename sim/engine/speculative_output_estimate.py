"""The tokens that running requests will still generate, where a step may give several."""

from __future__ import annotations

from dynosim.sim.engine.decode_set import DecodeSet
from dynosim.sim.engine.output_estimate import OutputEstimate
from dynosim.sim.engine.sglang_rules import SglangRules
from dynosim.sim.engine.speculative_decode_set import SpeculativeDecodeSet


class SpeculativeOutputEstimate(OutputEstimate):
    """As :class:`OutputEstimate`, from what ``decoding`` has emitted; costs O(requests)."""

    __slots__ = ("_decoding",)

    def __init__(
        self, rules: SglangRules, conservativeness: float, decoding: SpeculativeDecodeSet
    ) -> None:
        super().__init__(rules, conservativeness)
        self._decoding = decoding

    def tokens(self, step: int) -> float:
        clip = self._clip
        return sum(min(left, clip) for left in self._decoding.tokens_left()) * self.ratio(step)


def output_estimate(
    rules: SglangRules, conservativeness: float, decoding: DecodeSet
) -> OutputEstimate:
    """Returns the estimate for requests that decode in ``decoding``."""
    if isinstance(decoding, SpeculativeDecodeSet):
        return SpeculativeOutputEstimate(rules, conservativeness, decoding)
    return OutputEstimate(rules, conservativeness)
