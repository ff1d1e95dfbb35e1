"""Servers in a thread of this process: one that keeps its word to the ms, and any that do not."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

HOST = "127.0.0.1"
Connection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextmanager
def served(connection: Connection, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Yields the address of a server that leaves every connection to ``connection``."""
    up: Future[tuple[int, Callable[[], object]]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        server = await asyncio.start_server(_closing(connection), HOST, 0, ssl=tls)
        loop = asyncio.get_running_loop()
        port = server.sockets[0].getsockname()[1]
        up.set_result((port, lambda: loop.call_soon_threadsafe(stop.set)))
        await stop.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    port, stop = up.result(5)
    try:
        yield f"{'https' if tls else 'http'}://{HOST}:{port}"
    finally:
        stop()
        thread.join(5)


@asynccontextmanager
async def served_here(connection: Connection) -> AsyncIterator[str]:
    """Yields the address of a server in the running loop: no other thread comes in between."""
    server = await asyncio.start_server(_closing(connection), HOST, 0)
    try:
        yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def _closing(connection: Connection) -> Connection:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await connection(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    return handle


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """Returns path, headers (lower case) and body of the next request; EOFError after the last.

    The path of a HEAD is empty.
    """
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {k.strip().lower(): v.strip() for k, v in (line.split(":", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    method, path, _ = first.split()
    return "" if method == "HEAD" else path, headers, body


def response(status: str, kind: str, body: str, *headers: str) -> bytes:
    """Returns a whole HTTP response."""
    content = body.encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(content)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + content


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def chunk(text: str) -> bytes:
    """Returns a chunk of a chunked body; the empty one ends it."""
    content = text.encode()
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


def event(document: dict[str, Any] | str) -> str:
    """Returns a server-sent event."""
    data = document if isinstance(document, str) else json.dumps(document)
    return f"data: {data}\n\n"


def token(text: str = "a", **more: Any) -> str:
    """Returns the event of a token."""
    return event({"choices": [{"text": text, "finish_reason": None}], **more})


def usage(completion: int, prompt: int = 4) -> str:
    """Returns the event that ends with the counts."""
    counts = {"completion_tokens": completion, "prompt_tokens": prompt}
    return event({"choices": [], "usage": counts})


@dataclass
class Engine:
    """Answers each request with ``ttft_s`` and then ``tpot_s``, ``step`` tokens an event.

    ``asked`` are the requests it got, ``written`` for each the monotonic times at which it came and
    at which each event was written.
    """

    ttft_s: float = 0.03
    tpot_s: float = 0.01
    step: int = 1
    counts_along: bool = True
    models: tuple[str, ...] = ("m",)
    max_model_len: int = 4096
    metrics: Callable[[Engine], str] | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    written: list[tuple[float, list[float]]] = field(default_factory=list)
    connections: int = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection, as long as it lasts."""
        self.connections += 1
        while True:
            path, headers, body = await read_request(reader)
            if not path:
                writer.write(response("200 OK", "text/plain", ""))
            elif path == "/v1/completions":
                await self._answer(json.loads(body), headers, writer)
            else:
                writer.write(self._page(path))

    def _page(self, path: str) -> bytes:
        if path == "/v1/models":
            rows = [{"id": name, "max_model_len": self.max_model_len} for name in self.models]
            return response("200 OK", "application/json", json.dumps({"data": rows}))
        if path == "/metrics" and self.metrics is not None:
            return response("200 OK", "text/plain", self.metrics(self))
        return response("404 Not Found", "text/plain", "not here")

    async def _answer(
        self, asked: dict[str, Any], headers: dict[str, str], writer: asyncio.StreamWriter
    ) -> None:
        came_s = time.monotonic()
        self.asked.append(asked)
        self.headers.append(headers)
        times: list[float] = []
        self.written.append((came_s, times))
        writer.write(STREAM_HEAD)
        tokens, prompt = int(asked["max_tokens"]), len(asked["prompt"])
        for done in range(0, tokens, self.step):
            await asyncio.sleep(came_s + self.ttft_s + done * self.tpot_s - time.monotonic())
            so_far = min(done + self.step, tokens)
            counts = {"completion_tokens": so_far, "prompt_tokens": prompt}
            more: dict[str, Any] = {"usage": counts} if self.counts_along else {}
            times.append(time.monotonic())
            writer.write(chunk(token(**more)))
        writer.write(chunk(usage(tokens, prompt) + event("[DONE]")) + chunk(""))
