"""When requests go: at their times, as slots become free, or after the answers they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from dynosim.sim.workload.turns import Waiting
from dynosim.verification.load_plan import LoadPlan

_AHEAD_S = 0.05
"""A request is made ready this long before it is due."""
_CLOSE_S = 0.002
"""Timers may be a ms late; the last bit is waited for by letting others run, again and again."""

Now = Callable[[], float]
Send = Callable[[int, float], Awaitable[float]]
"""Sends the request of a number when its time has come; returns when its answer was complete."""


async def sleep_until(at_s: float, now_s: Now) -> None:
    """Returns at a time of the clock, not before and hardly later."""
    while (left_s := at_s - now_s()) > 0:
        await asyncio.sleep(left_s - _CLOSE_S if left_s > _CLOSE_S else 0)


class Pacing:
    """Sends the measured requests of a plan in order, by a clock that starts at zero."""

    def __init__(self, plan: LoadPlan, send: Send, now_s: Now) -> None:
        self._plan = plan
        self._send = send
        self._now_s = now_s
        self._numbers = range(plan.warmup, len(plan))

    async def run(self) -> None:
        """Returns when the last answer is complete; whatever ``send`` raises ends all."""
        turns = None
        async with asyncio.TaskGroup() as group:
            if self._plan.max_concurrency is not None:
                self._in_slots(group, self._plan.max_concurrency)
                return
            if self._plan.turns is not None:
                turns = Waiting(self._plan.turns, self._numbers)
            for number in self._numbers:
                if turns is None or not turns.waits(number):
                    at_s = self._send_s(number)
                    await sleep_until(at_s - _AHEAD_S, self._now_s)
                    group.create_task(self._one(group, number, at_s, turns))

    def _in_slots(self, group: asyncio.TaskGroup, slots: int) -> None:
        waiting = iter(self._numbers)
        for _ in range(min(slots, len(self._numbers))):
            group.create_task(self._slot(waiting))

    async def _slot(self, waiting: Iterator[int]) -> None:
        """Sends one request after the other, whichever is next when one is over."""
        free_s = 0.0
        for number in waiting:
            free_s = await self._send(number, max(free_s, self._send_s(number)))

    async def _one(
        self, group: asyncio.TaskGroup, number: int, at_s: float, turns: Waiting | None
    ) -> None:
        over_s = await self._send(number, at_s)
        for later, think_s in turns.answered(number) if turns is not None else ():
            later_s = max(over_s + think_s, self._send_s(later))
            group.create_task(self._one(group, later, later_s, turns))

    def _send_s(self, number: int) -> float:
        return 0.0 if self._plan.send_s is None else self._plan.send_s[number]
