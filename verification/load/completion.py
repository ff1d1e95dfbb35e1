"""One streamed completion over HTTP. Whatever a server does ends in an outcome, within a time."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynosim.verification.load.answer import Answer, error_text
from dynosim.verification.load.bad_answer import BadAnswer
from dynosim.verification.load.endpoint import Endpoint, redacted
from dynosim.verification.load.event_stream import EventStream
from dynosim.verification.load.session import Sending

if TYPE_CHECKING:
    import aiohttp

PATH = "/v1/completions"
_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "text/event-stream",
    # A compressed stream holds tokens back, and may be a bomb.
    "Accept-Encoding": "identity",
}
_BASE_BYTES, _BYTES_PER_TOKEN = 1 << 16, 1 << 13
"""Most that an answer may be; an event with one token is about 300 bytes (vLLM 0.32)."""
_ERROR_BYTES = 1 << 14
_DRAIN_S = 0.05
"""Time for the end of a stream to come after its last event, so that its connection is kept."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one request, in seconds of the clock that was given; ``error`` None if all did.

    ``is_guessed`` says that events did not tell how many tokens they hold.
    """

    sent_s: float
    end_s: float
    token_s: Sequence[float]
    input_tokens: int | None
    error: str | None
    is_guessed: bool


def request_body(
    model: str, prompt: Sequence[int], output_tokens: int, priority: int | None = None
) -> bytes:
    """Returns the JSON of a request for exactly ``output_tokens``; some fields are extensions.

    ``ignore_eos`` and ``continuous_usage_stats`` are known to vLLM, SGLang and TensorRT-LLM.
    """
    body = {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    if priority is not None:
        body["priority"] = priority
    return json.dumps(body, separators=(",", ":")).encode()


async def complete(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    body: bytes,
    *,
    asked: int,
    timeout_s: float,
    now_s: Callable[[], float],
) -> Outcome:
    """Sends one request, once, and returns what came of it."""
    import aiohttp

    answer, sending = Answer(asked), Sending(now_s)
    error = None
    try:
        async with asyncio.timeout(timeout_s):
            await _exchange(session, endpoint, body, answer, sending, now_s)
    except TimeoutError:
        error = f"not complete after {timeout_s:g} s: {len(answer.token_s)} of {asked} tokens"
    except BadAnswer as bad:
        error = str(bad)
    except (aiohttp.ClientError, OSError, ValueError) as failure:
        error = connection_error(failure, answer)
    return Outcome(
        sent_s=sending.at_s,
        end_s=answer.token_s[-1] if error is None else now_s(),
        token_s=answer.token_s,
        input_tokens=answer.input_tokens,
        error=None if error is None else endpoint.quote(error),
        is_guessed=answer.is_guessed,
    )


def connection_error(failure: Exception, answer: Answer | None = None) -> str:
    """Returns in words what became of a connection."""
    import aiohttp

    if isinstance(
        failure, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError
    ):
        return f"no trusted TLS connection: {failure}"
    if isinstance(failure, aiohttp.ClientConnectorError):
        code = failure.os_error.errno
        return f"no connection: {os.strerror(code) if code and code > 0 else failure.os_error}"
    if answer is not None and answer.token_s:
        return f"hung up after {len(answer.token_s)} of {answer.asked} tokens"
    if isinstance(failure, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
        return "hung up without an answer"
    if isinstance(failure, aiohttp.ClientResponseError):
        return f"no HTTP answer: {failure.message}"
    return f"{type(failure).__name__}: {failure}"


async def _exchange(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    body: bytes,
    answer: Answer,
    sending: Sending,
    now_s: Callable[[], float],
) -> None:
    # Of a file, since aiohttp warns of more than a MiB of bytes.
    content = io.BytesIO(body)
    async with session.post(
        endpoint.url(PATH),
        data=content,
        headers=_HEADERS,
        allow_redirects=False,
        trace_request_ctx=sending,
    ) as response:
        await _check_head(response)
        stream, left = EventStream(), _BASE_BYTES + _BYTES_PER_TOKEN * answer.asked
        async for chunk in response.content.iter_any():
            at_s = now_s()
            left -= len(chunk)
            if left < 0:
                raise BadAnswer("an endless stream: far more bytes than such an answer takes")
            for data in stream.feed(chunk):
                answer.take(data, at_s)
            if answer.is_over:
                break
        answer.end()
        await _drain(response)


async def _check_head(response: aiohttp.ClientResponse) -> None:
    """Raises BadAnswer unless a stream of events follows."""
    status, kind = response.status, response.content_type
    if 300 <= status < 400:
        target = redacted(response.headers.get("Location", "nowhere"))
        raise BadAnswer(f"it redirects to {target} (HTTP {status}): give that address")
    if status != 200:
        after = response.headers.get("Retry-After")
        later = f", to be sent again after {after} s" if after else ""
        raise BadAnswer(f"HTTP {status} {response.reason}{later}: {await _words(response)}")
    if kind != "text/event-stream":
        raise BadAnswer(f"{kind} where a stream of events was asked for: {await _words(response)}")
    coding = response.headers.get("Content-Encoding", "identity")
    if coding.lower() != "identity":
        raise BadAnswer(f"a stream compressed with {coding}, which was not asked for")


async def _words(response: aiohttp.ClientResponse) -> str:
    """Returns what the beginning of a body says."""
    try:
        content = await read_at_most(response, _ERROR_BYTES)
    except BadAnswer:
        return "a long page"
    text = content.decode(errors="replace")
    try:
        return error_text(json.loads(text))
    except (ValueError, RecursionError):
        return text.strip() or "no words"


async def read_at_most(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Returns a whole body; BadAnswer for one of more bytes."""
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > most:
            raise BadAnswer(f"more than {most} bytes")
    return bytes(content)


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Reads the end of a stream, which gives its connection back; a stream without is closed."""
    import aiohttp

    try:
        async with asyncio.timeout(_DRAIN_S):
            await read_at_most(response, _ERROR_BYTES)
    except (TimeoutError, BadAnswer, aiohttp.ClientError):
        response.close()
