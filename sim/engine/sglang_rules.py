"""The figures that SGLang's scheduler goes by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dynosim.hardware_models.cards import read_card, value_of


@dataclass(frozen=True, kw_only=True)
class SglangRules:
    """SGLang's own names and values; their sources stand in its card, ``backends/sglang.yaml``.

    ``in_batch_prefix_tokens`` is both of its thresholds for prefixes shared within the queue.
    """

    init_new_token_ratio: float
    min_new_token_ratio_factor: float
    new_token_ratio_decay_steps: int
    retract_decode_steps: int
    clip_max_new_tokens: int
    in_batch_prefix_tokens: int
    lpm_queue_limit: int
    max_prefill_tokens: int
    reserved_decode_tokens: int
    few_slots: int


@lru_cache(maxsize=1)
def sglang_rules() -> SglangRules:
    """Returns the figures of SGLang's card."""
    figures = read_card("backends", "sglang")["scheduler"]
    return SglangRules(**{name: value_of(figures, name) for name in figures})
