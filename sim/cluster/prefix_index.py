"""What routers know of prefix caches: which replicas hold which prefix units."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dynosim.sim.cluster.cache_feed import CacheFeed, LateFeed, Tell
from dynosim.sim.cluster.prompts import Prompts
from dynosim.sim.engine.schedulers.base import BlockPool

if TYPE_CHECKING:
    from dynosim.sim.tiers.stack import TierStack


class PrefixIndex:
    """Follows all replicas' caches by their events, which arrive ``lag_s`` after they happened.

    Of each unit it keeps the set of caches that hold it, as bits. Units are chained and caches hold
    no unit without those before it, so what a cache has of a prompt is found by walking the
    prompt's units until no cache is left; that stays right while events are on their way, since
    each cache's arrive in order.
    """

    def __init__(self, prompts: Prompts, lag_s: float = 0.0) -> None:
        self._prompts = prompts
        self._lag_s = lag_s
        self._clock: Callable[[], float] | None = None
        self._holders: dict[int, int] = {}
        self._num_caches = self._num_replicas = 0
        # Events on their way, oldest first: when they arrive, and what they then tell.
        self._underway: deque[tuple[float, Tell, list[int], int, int]] = deque()
        self._last: tuple[int, Sequence[int]] = (-1, ())
        self._stacks: Sequence[TierStack] = ()

    def follow(self, caches: Sequence[BlockPool], num_replicas: int) -> None:
        """Begins to watch caches, equally many a replica, those of one side by side."""
        self._num_caches, self._num_replicas = len(caches), num_replicas
        for number, cache in enumerate(caches):
            feed = CacheFeed(self._holders, 1 << number)
            cache.watcher = LateFeed(feed, self._post) if self._lag_s else feed

    def look_below(self, stacks: Sequence[TierStack]) -> None:
        """Lets the index look into tiers below the GPUs, one stack a cache, without any lag."""
        self._stacks = stacks

    def below(self, request: int, cached: Sequence[int]) -> Sequence[tuple[int, int]] | None:
        """Returns how many units each replica finds in host memory, and in tiers below that.

        They follow those that are ``cached`` on its GPUs without a gap; None where no replica has
        tiers. Of ranks side by side it is the most that any has.
        """
        if not self._stacks:
            return None
        units = self._prompts.units(request)
        ranks = self._num_caches // self._num_replicas
        return [
            max(
                _below(stack, units, cached[number])
                for stack in self._stacks[number * ranks : (number + 1) * ranks]
            )
            for number in range(self._num_replicas)
        ]

    def _post(self, tell: Tell, units: list[int], start: int, stop: int) -> None:
        """Lets an event arrive when the lag has passed."""
        assert self._clock is not None, "a lag without a clock"
        self._underway.append((self._clock() + self._lag_s, tell, units, start, stop))

    def tick_by(self, clock: Callable[[], float]) -> None:
        """Sets what tells the time in seconds; a lag needs one."""
        self._clock = clock

    def overlaps(self, request: int) -> Sequence[int]:
        """Returns how many leading units of the prompt each replica has cached, as known now."""
        if self._underway:
            self._catch_up()
        by_cache = self._overlaps(self._prompts.units(request))
        ranks = self._num_caches // self._num_replicas
        found = by_cache
        if ranks > 1:
            found = [max(by_cache[at : at + ranks]) for at in range(0, len(by_cache), ranks)]
        self._last = request, found
        return found

    def _catch_up(self) -> None:
        assert self._clock is not None, "a lag without a clock"
        now_s = self._clock()
        underway = self._underway
        while underway and underway[0][0] <= now_s:
            _, tell, units, start, stop = underway.popleft()
            tell(units, start, stop)

    def _overlaps(self, units: list[int]) -> list[int]:
        found = [0] * self._num_caches
        get = self._holders.get
        left = (1 << self._num_caches) - 1
        for depth, unit in enumerate(units):
            holds = get(unit, 0) & left
            if holds == left:
                continue
            gone = left ^ holds
            while gone:
                bit = gone & -gone
                found[bit.bit_length() - 1] = depth
                gone ^= bit
            left = holds
            if not left:
                return found
        while left:
            bit = left & -left
            found[bit.bit_length() - 1] = len(units)
            left ^= bit
        return found

    def cached_tokens(self, request: int, replica: int) -> int:
        """Returns the tokens of the prompt that a replica just chosen has cached, as known now."""
        index, found = self._last
        if index != request:
            found = self.overlaps(request)
        return found[replica] * self._prompts.unit_tokens


def _below(stack: TierStack, units: list[int], start: int) -> tuple[int, int]:
    found = stack.find(units, start, len(units)).tiers
    host = sum(1 for tier in found if tier.spec.name == "host")
    return host, len(found) - host
