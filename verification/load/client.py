"""Sends a plan to a server, and returns what a client sees of every request."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dynosim.hardware_models.errors import UserError
from dynosim.verification.load import engine_metrics
from dynosim.verification.load.completion import Outcome, complete, request_body
from dynosim.verification.load.endpoint import Endpoint
from dynosim.verification.load.engine_metrics import EngineMetrics
from dynosim.verification.load.lag import LoopWatch, check_lag, lag_of
from dynosim.verification.load.limits import Limits
from dynosim.verification.load.pacing import Pacing, sleep_until
from dynosim.verification.load.record import Record
from dynosim.verification.load.session import (
    check_installed,
    open_connections,
    open_session,
    run_async,
)
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.observed import ObservedRun

if TYPE_CHECKING:
    import aiohttp

_READY_BYTES = 256 << 20
"""Requests that are made before the clock starts; those beyond are made while it runs."""
_CONNECTIONS = 64
"""Connections that are opened ahead for an open loop; it opens more when it needs them."""
_LEAD_S = 0.1
"""Time for the first requests to be ready when the clock starts."""


def measure_load(
    endpoint: Endpoint, model: str, plan: LoadPlan, limits: Limits | None = None
) -> ObservedRun:
    """Returns what is seen of every measured request of ``plan``.

    Each is sent once and never again. The run ends in time whatever the server does. Raises
    UserError where the warm-up fails, more requests fail than ``limits`` allow, or the load
    generator itself was too late.
    """
    check_installed()
    return run_async(observe_load(endpoint, model, plan, limits))


async def observe_load(
    endpoint: Endpoint, model: str, plan: LoadPlan, limits: Limits | None = None
) -> ObservedRun:
    """Returns what :func:`measure_load` does, in the loop that runs."""
    return await _Measurement(endpoint, model, plan, limits or Limits()).run()


class _Measurement:
    """One run of a plan; times are seconds after the start of the load."""

    def __init__(self, endpoint: Endpoint, model: str, plan: LoadPlan, limits: Limits) -> None:
        self._endpoint = endpoint
        self._model = model
        self._plan = plan
        self._limits = limits
        self._record = Record(plan, limits, endpoint.base_url)
        self._start_s = 0.0
        self._ready: dict[int, bytes] = {}
        self._session: aiohttp.ClientSession

    async def run(self) -> ObservedRun:
        self._record.check_span()
        async with open_session(self._endpoint) as self._session:
            try:
                async with asyncio.timeout(self._limits.run_timeout_s):
                    await self._warm_up()
                    self._make_ready()
                    await open_connections(self._session, self._endpoint, self._connections())
                    before = await engine_metrics.scrape(self._session, self._endpoint)
                    late_s = await self._load()
            except TimeoutError:
                raise self._record.too_long() from None
            after = await engine_metrics.scrape(self._session, self._endpoint)
        return self._observed(late_s, before, after)

    async def _warm_up(self) -> None:
        """Sends the warm-up, all at once; UserError for what is wrong with server or plan."""
        numbers = range(self._plan.warmup)
        outcomes = await asyncio.gather(*(self._complete(i, self._body(i)) for i in numbers))
        for outcome in outcomes:
            if outcome.error is not None:
                raise UserError(
                    f"the first requests failed: {outcome.error}", where=self._endpoint.base_url
                )

    async def _load(self) -> list[float]:
        """Sends the load; returns how late the loop came to what was due, in seconds."""
        watch = LoopWatch()
        with _no_collection():
            self._start_s = asyncio.get_running_loop().time() + _LEAD_S
            watching = asyncio.create_task(watch.watch(self._now_s))
            try:
                await Pacing(self._plan, self._send, self._now_s).run()
            except ExceptionGroup as group:
                raise group.exceptions[0] from None
            finally:
                watching.cancel()
        return watch.late_s

    async def _send(self, number: int, at_s: float) -> float:
        body = self._ready.pop(number, None) or self._body(number)
        await sleep_until(at_s, self._now_s)
        outcome = await self._complete(number, body)
        self._record.add(number, at_s, outcome)
        return outcome.end_s

    async def _complete(self, number: int, body: bytes) -> Outcome:
        return await complete(
            self._session,
            self._endpoint,
            body,
            asked=self._plan.output_tokens[number],
            timeout_s=self._limits.request_timeout_s,
            now_s=self._now_s,
        )

    def _body(self, number: int) -> bytes:
        plan = self._plan
        priority = None if plan.priority is None else plan.priority[number]
        return request_body(self._model, plan.prompts[number], plan.output_tokens[number], priority)

    def _make_ready(self) -> None:
        size = 0
        for number in range(self._plan.warmup, len(self._plan)):
            self._ready[number] = body = self._body(number)
            size += len(body)
            if size > _READY_BYTES:
                return

    def _connections(self) -> int:
        """Returns how many connections a load is likely to need at its start."""
        cap = self._plan.max_concurrency
        return min(_CONNECTIONS if cap is None else cap, len(self._plan) - self._plan.warmup)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time() - self._start_s

    def _observed(
        self, late_s: list[float], before: EngineMetrics | None, after: EngineMetrics | None
    ) -> ObservedRun:
        record = self._record
        requests = record.requests()
        lag = lag_of(requests, late_s)
        said = check_lag(lag, requests, self._limits.max_lag_share)
        facts: dict[str, float | str] = {**lag.facts()}
        notes = [*self._endpoint.notes(), *([said] if said else []), *record.notes()]
        if before is not None and after is not None:
            facts |= engine_metrics.facts(before, after)
            notes += engine_metrics.notes(before, after, self._plan)
        return ObservedRun(
            requests=requests,
            duration_s=record.duration_s(),
            clock="wall",
            notes=tuple(notes),
            facts=facts,
        )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keeps the garbage collector from pausing a measurement."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
