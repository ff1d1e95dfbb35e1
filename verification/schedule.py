"""In which order candidates are measured: in rounds, so that a drift meets all alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynosim.hardware_models.errors import UserError
from dynosim.verification.choice import Pick


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One measurement: which pick, and which of its repeats (from 1)."""

    pick: Pick
    repeat: int

    @property
    def name(self) -> str:
        """Names the measurement's files."""
        return f"trial-{self.pick.number:04d}-repeat-{self.repeat}"


def rounds(picks: Sequence[Pick], repeats: int) -> list[Turn]:
    """Returns A B C A B C …: each round measures every pick once."""
    if repeats < 1:
        raise UserError(f"found {repeats}", where="--repeats", hint="allowed: >= 1; 3 show noise")
    return [Turn(pick=pick, repeat=r) for r in range(1, repeats + 1) for pick in picks]


def stretches(turns: Sequence[Turn]) -> Iterator[list[Turn]]:
    """Yields turns in a row that need one engine: it need not start anew between them."""
    stretch: list[Turn] = []
    for turn in turns:
        if stretch and stretch[-1].pick.number != turn.pick.number:
            yield stretch
            stretch = []
        stretch.append(turn)
    if stretch:
        yield stretch
