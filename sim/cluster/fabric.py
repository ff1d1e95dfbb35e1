"""Links that transfers share: fluid processor sharing, max-min fair over every link of a path.

While nothing changes, bytes flow at constant rates. Each link divides its bandwidth equally among
the transfers it is the narrowest place of; what those that are held up elsewhere leave over goes
to the others (progressive filling; Bertsekas and Gallager, Data Networks, 1992, section 6.5.2). On
one link alone that is processor sharing: n transfers at once take n times as long.

    fabric = Fabric(env)
    uplink = Link("uplink", 50e9)
    yield fabric.send([uplink], 1_000_000_000)
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import simpy

from dynosim.hardware_models.errors import UserError

_DONE_S = 1e-9
"""A transfer that needs less than this is over: the clock has no finer steps after a few hours."""


class Link:
    """One direction of a wire: its bandwidth, and what it has carried so far.

    Raises UserError, located by ``name``, unless the bandwidth is a positive, finite number.
    """

    __slots__ = ("bandwidth_bytes_s", "busy_s", "carried_bytes", "name")

    def __init__(self, name: str, bandwidth_bytes_s: float) -> None:
        if not 0.0 < bandwidth_bytes_s < math.inf:
            raise UserError(
                f"found {bandwidth_bytes_s:g} bytes/s", where=name, hint="allowed: > 0, finite"
            )
        self.name = name
        self.bandwidth_bytes_s = bandwidth_bytes_s
        self.carried_bytes = 0.0
        self.busy_s = 0.0


class _Flow:
    """A transfer under way."""

    __slots__ = ("done", "left_bytes", "links", "most_bytes_s", "rate_bytes_s")

    def __init__(
        self, done: simpy.Event, links: tuple[Link, ...], left_bytes: float, most_bytes_s: float
    ) -> None:
        self.done = done
        self.links = links
        self.left_bytes = left_bytes
        self.most_bytes_s = most_bytes_s
        self.rate_bytes_s = 0.0


class Fabric:
    """All transfers under way, and the event at which the next one ends."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._flows: list[_Flow] = []
        self._as_of_s = env.now
        self._version = 0
        self._cancelled: set[simpy.Event] = set()

    @property
    def num_transfers(self) -> int:
        """Transfers under way, those that still wait out their latency not counted."""
        return len(self._flows)

    def send(
        self,
        links: Iterable[Link],
        num_bytes: float,
        *,
        latency_s: float = 0.0,
        most_bytes_s: float = math.inf,
    ) -> simpy.Event:
        """Returns the event of the last byte's arrival over all ``links``.

        Bytes begin to flow after ``latency_s``, at no more than ``most_bytes_s``, the pace of
        whoever makes them.
        """
        if not num_bytes >= 0.0 or not latency_s >= 0.0:
            raise ValueError(f"cannot send {num_bytes} bytes after {latency_s} s")
        done = self._env.event()
        flow = _Flow(done, tuple(links), num_bytes, most_bytes_s)
        if latency_s > 0.0:
            begin = self._env.timeout(latency_s)
            assert begin.callbacks is not None
            begin.callbacks.append(lambda _: self._begin(flow))
        else:
            self._begin(flow)
        return done

    def cancel(self, done: simpy.Event) -> None:
        """Ends the transfer whose last byte's arrival is ``done``, unless that has been."""
        self._advance()
        left = [flow for flow in self._flows if flow.done is not done]
        if len(left) == len(self._flows) and not done.triggered:
            # It has not begun.
            self._cancelled.add(done)
        self._flows = left
        self._share()

    def _begin(self, flow: _Flow) -> None:
        if flow.done in self._cancelled:
            self._cancelled.remove(flow.done)
            return
        self._advance()
        if flow.left_bytes > 0.0:
            self._flows.append(flow)
        else:
            flow.done.succeed()
        self._share()

    def _advance(self) -> None:
        """Lets bytes flow until now, and ends the transfers that have all of theirs."""
        now_s = self._env.now
        elapsed_s = now_s - self._as_of_s
        self._as_of_s = now_s
        if elapsed_s > 0.0:
            busy = set()
            for flow in self._flows:
                moved = min(flow.rate_bytes_s * elapsed_s, flow.left_bytes)
                flow.left_bytes -= moved
                for link in flow.links:
                    link.carried_bytes += moved
                    busy.add(link)
            for link in busy:
                link.busy_s += elapsed_s
        over = [f for f in self._flows if f.left_bytes <= f.rate_bytes_s * _DONE_S]
        if over:
            self._flows = [f for f in self._flows if f.left_bytes > f.rate_bytes_s * _DONE_S]
            for flow in over:
                flow.done.succeed()

    def _share(self) -> None:
        """Gives every transfer its rate, and wakes up when the first of them will be over."""
        self._version += 1
        if not self._flows:
            return
        _fill(self._flows)
        version = self._version
        next_s = min(flow.left_bytes / flow.rate_bytes_s for flow in self._flows)
        wake = self._env.timeout(next_s)
        assert wake.callbacks is not None
        wake.callbacks.append(lambda _: self._wake(version))

    def _wake(self, version: int) -> None:
        if version == self._version:
            self._advance()
            self._share()


def _fill(flows: list[_Flow]) -> None:
    """Sets the max-min fair rates: again and again, those that share the narrowest link."""
    spare = {link: link.bandwidth_bytes_s for flow in flows for link in flow.links}
    users = dict.fromkeys(spare, 0)
    for flow in flows:
        for link in flow.links:
            users[link] += 1
    open_flows = flows
    while open_flows:
        shares = {link: spare[link] / count for link, count in users.items() if count}
        narrowest = min(shares.values(), default=math.inf)
        level = min(narrowest, *(flow.most_bytes_s for flow in open_flows))
        still_open = []
        for flow in open_flows:
            at_most = min((shares[link] for link in flow.links), default=math.inf)
            if min(at_most, flow.most_bytes_s) > level:
                still_open.append(flow)
                continue
            flow.rate_bytes_s = level
            for link in flow.links:
                spare[link] -= level
                users[link] -= 1
        open_flows = still_open
