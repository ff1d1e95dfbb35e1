"""Token ids that prompts are made of: no special ones, drawn by place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.errors import UserError
from dynosim.sim.random_streams import draws

_LOW_SHARE, _MOST_LOW = 0.1, 1000
_HIGH_SHARE = 0.03
"""Where vocabularies keep special tokens: the first thousand (Mistral's tekken), or the last 0.2 %
(Llama 3: 256 of 128,256; Qwen 2.5 and 3: 293 of 151,936). Their tokenizer_config.json, 2026-11."""


@dataclass(frozen=True, kw_only=True)
class TokenIds:
    """The ids ``first`` to ``end - 1``, drawn from with ``seed``; UserError for fewer than two."""

    first: int
    end: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.first < 0 or len(self) < 2:
            raise UserError(
                f"no prompts can be made of the token ids {self.first} to {self.end - 1}",
                where="token ids",
                hint="allowed: at least two ids, from 0 on",
            )

    @classmethod
    def of_vocabulary(cls, size: int, seed: int = 0) -> TokenIds:
        """Returns the middle of a vocabulary, clear of both ends, where special tokens are."""
        first = min(_MOST_LOW, int(size * _LOW_SHARE))
        return cls(first=first, end=size - int(size * _HIGH_SHARE), seed=seed)

    def __len__(self) -> int:
        return self.end - self.first

    def drawn(self, at: tuple[int, int], count: int) -> list[int]:
        """Returns the ``count`` ids that belong to a place, whenever they are asked for."""
        if not count:
            return []
        shares = draws(self.seed, "prompt tokens", at, count)
        ids: list[int] = (self.first + np.floor(shares * len(self)).astype(np.int64)).tolist()
        return ids

    def digits(self, number: int, count: int) -> tuple[int, ...]:
        """Returns ``number`` written with ``count`` ids, the quickest changing first."""
        found = []
        for _ in range(count):
            number, digit = divmod(number, len(self))
            found.append(self.first + digit)
        return tuple(found)

    def digits_for(self, numbers: int) -> int:
        """Returns how many ids tell 0 to ``numbers - 1`` apart, at least one."""
        count, reach = 1, len(self)
        while reach < numbers:
            count, reach = count + 1, reach * len(self)
        return count
