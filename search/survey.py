"""Which combinations can run, and which of them are the same simulation; in order of looking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable

from dynosim.search.outcome import Screen
from dynosim.search.space import SearchSpace
from dynosim.sim.deployment import Deployment

Twin = Callable[[Deployment], Hashable]
"""Returns something that deployments share which give the same simulation."""


class Survey:
    """What was found of the combinations that were looked at, each of them once.

    ``able`` can run and differ from each other. ``twins`` are flat indices for which another
    stands; ``refused`` counts those that cannot run, by reason, and ``examples`` has one detail of
    each.
    """

    def __init__(self, space: SearchSpace, screen: Screen, twin_of: Twin | None = None) -> None:
        self._space, self._screen, self._twin_of = space, screen, twin_of
        self._kinds: set[Hashable] = set()
        self._looked_at: set[int] = set()
        self.able: list[int] = []
        self.twins: set[int] = set()
        self.refused: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    @property
    def screened(self) -> int:
        """How many candidates were looked at, equivalent ones counted once."""
        return len(self.able) + sum(self.refused.values())

    def look(self, indices: Iterable[int]) -> list[int]:
        """Returns those of ``indices`` that can run and that nothing seen before stands for."""
        found = [index for index in indices if self._is_new(index)]
        self.able += found
        return found

    def _is_new(self, index: int) -> bool:
        space = self._space
        if index in self._looked_at:
            return False
        self._looked_at.add(index)
        if space.normal(index) != index:
            self.twins.add(index)
            return False
        deployment = space.deployment(index)
        refusal = self._screen(deployment)
        if refusal is not None:
            self.refused[str(refusal.reason)] += 1
            self.examples.setdefault(str(refusal.reason), refusal.detail)
            return False
        kind = deployment if self._twin_of is None else self._twin_of(deployment)
        if kind in self._kinds:
            self.twins.add(index)
            return False
        self._kinds.add(kind)
        return True
