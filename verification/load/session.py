"""A pool of connections to a server, and a loop to use it in."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from dynosim.hardware_models.errors import UserError
from dynosim.verification.load.endpoint import Endpoint

if TYPE_CHECKING:
    import aiohttp

_KEEP_S = 4.0
"""Servers on uvicorn (vLLM, SGLang, TensorRT-LLM) close idle connections after 5 s; a request on
one that is just being closed would fail."""
_T = TypeVar("_T")


def open_session(endpoint: Endpoint) -> aiohttp.ClientSession:
    """Returns a session that keeps connections open, verifies TLS and follows no proxies.

    It opens as many connections as there are requests in flight, and times out nothing by itself.
    """
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_S, ttl_dns_cache=3600),
        headers=endpoint.headers,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


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
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
