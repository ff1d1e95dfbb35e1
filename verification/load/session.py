"""A pool of connections to a server, and a loop to use it in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from dynosim.hardware_models.errors import UserError
from dynosim.verification.load.endpoint import Endpoint

if TYPE_CHECKING:
    import aiohttp

_KEEP_S = 4.0
"""Servers on uvicorn (vLLM, SGLang, TensorRT-LLM) close idle connections after 5 s; a request on
one that is just being closed would fail."""
HEALTH = "/health"
_OPEN_TIMEOUT_S = 10.0
_T = TypeVar("_T")


class Sending:
    """When a request went: its connection was begun, or it was written to one that was open."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._at_s: float | None = None

    def mark(self) -> None:
        """Notes the time, once: before it, a request only waited for others to be written."""
        if self._at_s is None:
            self._at_s = self._now_s()

    @property
    def at_s(self) -> float:
        """The time; now, for a request that did not get so far."""
        return self._now_s() if self._at_s is None else self._at_s


async def _mark(session: object, context: SimpleNamespace, what: object) -> None:
    sending = context.trace_request_ctx
    if isinstance(sending, Sending):
        sending.mark()


def open_session(endpoint: Endpoint) -> aiohttp.ClientSession:
    """Returns a session that keeps connections open, verifies TLS and follows no proxies.

    It opens as many connections as there are requests in flight, and times out nothing by itself.
    """
    import aiohttp

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_start.append(_mark)
    trace.on_request_chunk_sent.append(_mark)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_S, ttl_dns_cache=3600),
        headers=endpoint.headers,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trace_configs=[trace],
    )


async def open_connections(session: aiohttp.ClientSession, endpoint: Endpoint, count: int) -> None:
    """Opens connections ahead of requests, whose first ones would otherwise wait for them.

    A server that refuses says so when it is asked for something.
    """
    await asyncio.gather(*(_touch(session, endpoint) for _ in range(count)))


async def _touch(session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=_OPEN_TIMEOUT_S)
    with suppress(aiohttp.ClientError, OSError):
        async with session.head(endpoint.url(HEALTH), timeout=timeout, allow_redirects=False):
            pass


def check_installed() -> None:
    """Raises UserError where the client's library is missing."""
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        raise UserError(
            "sending load needs aiohttp", hint="install it: pip install 'dynosim[verify]'"
        ) from error


def run_async(work: Coroutine[Any, Any, _T]) -> _T:
    """Returns what a coroutine returns, also where a loop runs already, as in a notebook."""
    if not _is_in_loop():
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
