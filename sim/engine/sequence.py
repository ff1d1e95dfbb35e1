"""A request as its engine sees it."""

from __future__ import annotations

from dynosim.sim.engine.stretch import Chain

_NOTHING: Chain = []


class Sequence:
    """One request's state in one engine; the only mutable thing besides the engine itself.

    ``index`` orders requests by arrival. ``target`` is the number of tokens to compute before the
    next token is sampled (the prompt, and after a preemption also what was generated before).
    While prefilling, ``computed`` and ``blocks`` are exact; while decoding they follow from
    ``join_step``, the decode set's step count when the sequence joined it. ``units`` are the
    identities of its leading prefix units; of the first ``named`` it holds the cached copies
    ``held``. One that ``keeps_blocks`` holds them beyond its end, until they are freed.
    """

    __slots__ = (
        "blocks",
        "cached_tokens",
        "computed",
        "emitted",
        "first_step",
        "held",
        "index",
        "is_decoding",
        "join_step",
        "keeps_blocks",
        "named",
        "order",
        "output_tokens",
        "preemptions",
        "priority",
        "prompt_tokens",
        "scheduled_s",
        "target",
        "units",
    )

    def __init__(
        self,
        index: int,
        prompt_tokens: int,
        output_tokens: int,
        units: list[int],
        priority: int = 0,
    ) -> None:
        self.index = index
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.units = units
        self.priority = priority
        self.held: Chain = _NOTHING
        self.target = prompt_tokens
        self.computed = 0
        self.blocks = 0
        self.named = 0
        self.emitted = 0
        self.is_decoding = False
        self.keeps_blocks = False
        self.join_step = 0
        self.order = 0
        self.first_step = -1
        self.preemptions = 0
        self.cached_tokens = 0
        self.scheduled_s = -1.0

    @property
    def has_ended(self) -> bool:
        """Whether it has all its tokens; not brought up to date while it decodes."""
        return self.emitted == self.output_tokens
