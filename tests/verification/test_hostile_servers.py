"""Whatever a server does, its request gets an error in words, and the run ends in time."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.verification.load.client import measure_load
from dynosim.verification.load.endpoint import Endpoint
from dynosim.verification.load.limits import Limits
from dynosim.verification.observed import ObservedRun
from loads import plan
from servers import (
    STREAM_HEAD,
    Connection,
    chunk,
    event,
    read_request,
    response,
    served,
    token,
    usage,
)

TOKENS = 4
LOAD = plan(4, tokens=TOKENS, cap=1)
LIMITS = Limits(
    request_timeout_s=0.4, run_timeout_s=5.0, max_failed_share=0.5, max_lag_share=float("inf")
)
Fault = Callable[[asyncio.StreamWriter], Awaitable[None]]
GOOD = "".join([token()] * TOKENS) + usage(TOKENS) + event("[DONE]")


def stream(*texts: str, is_ended: bool = True) -> Fault:
    """Returns a server's answer: a stream of events in chunks, ended as it should or hung up."""

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + b"".join(map(chunk, texts)) + (chunk("") if is_ended else b""))
        if not is_ended:
            writer.close()

    return write


def raw(content: bytes, *, hangs_up: bool = False) -> Fault:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(content)
        if hangs_up:
            writer.close()

    return write


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD)
    while not writer.is_closing():
        writer.write(chunk(": nothing to say\n" * 100))
        await writer.drain()


async def endless_line(writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD)
    while not writer.is_closing():
        writer.write(chunk("x" * 10_000))
        await writer.drain()


async def endless_tokens(writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD)
    while not writer.is_closing():
        writer.write(chunk(token()))
        await writer.drain()


async def slow_drip(writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD + chunk(token()))
    for letter in token():
        writer.write(chunk(letter))
        await asyncio.sleep(0.1)


async def slow_head(writer: asyncio.StreamWriter) -> None:
    for byte in STREAM_HEAD:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.1)


async def endless_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for number in count():
        if writer.is_closing():
            return
        writer.write(f"X-{number}: {'y' * 4000}\r\n".encode())
        await writer.drain()


async def endless_error(writer: asyncio.StreamWriter) -> None:
    writer.write(
        b"HTTP/1.1 500 Oh\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    while not writer.is_closing():
        writer.write(chunk("oh " * 1000))
        await writer.drain()


async def silence(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


def error_page(status: str, document: object, *headers: str) -> Fault:
    return raw(response(status, "application/json", json.dumps(document), *headers))


ZIPPED = gzip.compress(GOOD.encode())
COMPRESSED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
    b"Content-Length: " + str(len(ZIPPED)).encode() + b"\r\n\r\n" + ZIPPED
)
OPENAI_ERROR = {"error": {"message": "unknown field ignore_eos", "type": "BadRequest"}}

FAULTS: dict[str, tuple[Fault, str]] = {
    "400": (error_page("400 Bad Request", OPENAI_ERROR), "HTTP 400 Bad Request: unknown field ig"),
    "404": (error_page("404 Not Found", {"detail": "Not Found"}), "HTTP 404 Not Found: Not Found"),
    "422": (error_page("422 No", {"detail": [{"loc": ["body"], "msg": "x"}]}), r'422 No: \[{"loc"'),
    "429": (
        error_page("429 Too Many Requests", OPENAI_ERROR, "Retry-After: 7"),
        "HTTP 429 Too Many Requests, to be sent again after 7 s: unknown",
    ),
    "500": (raw(response("500 Oops", "text/plain", "")), "HTTP 500 Oops: no words"),
    "503": (error_page("503 Busy", {"message": "draining"}), "HTTP 503 Busy: draining"),
    "endless error": (endless_error, "HTTP 500 Oh: a long page"),
    "redirect": (
        raw(response("307 Moved", "text/plain", "", "Location: http://me:pw@other/v1?key=s3cret")),
        r"redirects to http://\*\*\*@other/v1\?\*\*\* \(HTTP 307\)",
    ),
    "HTML page": (
        raw(response("200 OK", "text/html", "<html><h1>Welcome to nginx</h1>")),
        "text/html where a stream of events was asked for: <html><h1>Welcome",
    ),
    "wrong content type": (
        error_page("200 OK", {"choices": [{"text": "all at once"}]}),
        "application/json where a stream of events was asked for",
    ),
    "compressed": (raw(COMPRESSED), "compressed with gzip"),
    "no HTTP": (raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", hangs_up=True), "no HTTP answer: "),
    "endless head": (endless_head, "no HTTP answer: |hung up without an answer"),
    "slow head": (slow_head, r"not complete after 0.4 s: 0 of 4 tokens"),
    "silence": (silence, r"not complete after 0.4 s: 0 of 4 tokens"),
    "hang-up at once": (raw(b"", hangs_up=True), "hung up without an answer"),
    "hang-up mid-stream": (stream(token(), is_ended=False), "hung up after 1 of 4 tokens"),
    "hang-up before a token": (stream(": hi\n\n", is_ended=False), "hung up without an answer"),
    "ends early": (stream(token(), token()), "hung up after 2 of 4 tokens"),
    "garbage JSON": (stream(token(), "data: {not json\n\n"), "an event that is no JSON: {not json"),
    "deep JSON": (stream(f"data: {'[' * 90_000}\n\n"), "an event that is no JSON"),
    "no object": (stream("data: [1, 2]\n\n"), r"no JSON object: \[1, 2\]"),
    "bytes that are no text": (
        raw(STREAM_HEAD + b"9\r\ndata: \xff\xfe\n\r\n2\r\n\n\n\r\n"),
        "an event that is no JSON",
    ),
    "error in the stream": (
        stream(token(), event({"error": {"message": "engine died"}})),
        "it reports an error: engine died",
    ),
    "slow drip": (slow_drip, "not complete after 0.4 s: 1 of 4 tokens"),
    "endless stream": (endless, "an endless stream"),
    "endless line": (endless_line, "an endless stream|a line of more than"),
    "endless tokens": (endless_tokens, "more than the 4 tokens that were asked for"),
    "too many tokens": (stream(token() * 9), "more than the 4 tokens"),
    "too few tokens": (
        stream(
            token() + event({"choices": [{"text": "b", "finish_reason": "stop"}]}),
            usage(2) + event("[DONE]"),
        ),
        r"2 tokens \(finish_reason stop\), 4 were asked for: does it know ignore_eos\?",
    ),
    "another count": (
        stream(token() * TOKENS, usage(3) + event("[DONE]")),
        "4 tokens came, but its usage says 3",
    ),
    "nothing but the end": (stream(event("[DONE]")), "0 tokens, 4 were asked for"),
}


@dataclass
class Faulty:
    """Answers the first two requests as it should, and all others with a fault."""

    fault: Fault
    good: int = 2
    requests: int = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        while True:
            path, _, _ = await read_request(reader)
            if path != "/v1/completions":
                writer.write(response("404 Not Found", "text/plain", "" if not path else "no"))
                continue
            self.requests += 1
            if self.requests <= self.good:
                writer.write(STREAM_HEAD + chunk(GOOD) + chunk(""))
            else:
                await self.fault(writer)


def measure(server: Connection, limits: Limits = LIMITS) -> ObservedRun:
    with served(server) as url:
        return measure_load(Endpoint.at(url), "m", LOAD, limits)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_the_error_of_its_request(name: str) -> None:
    fault, wanted = FAULTS[name]
    server = Faulty(fault)
    run = measure(server)
    assert server.requests == 4, "none is sent twice"
    assert [r.error is None for r in run.requests] == [True, True, False, False]
    for request in run.requests[2:]:
        assert request.error is not None
        assert re.search(wanted, request.error), request.error
        assert len(request.error) < 300
        assert "s3cret" not in request.error


def test_too_many_failures_end_the_run_with_the_first() -> None:
    server = Faulty(FAULTS["503"][0], good=1)
    wanted = r"2 of 4 requests failed; the first, number 1, sent at \d.\d\d s: HTTP 503 Busy: drain"
    with pytest.raises(UserError, match=wanted):
        measure(server, replace(LIMITS, max_failed_share=0.25))
    assert server.requests == 3


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(UserError, match="no connection: Connection refused"):
        measure_load(Endpoint.at(url), "m", LOAD, LIMITS)


def test_a_server_that_takes_too_long_for_all_ends_the_run() -> None:
    async def late(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        writer.write(STREAM_HEAD + chunk(GOOD) + chunk(""))

    begin_s = time.monotonic()
    with pytest.raises(UserError, match=r"not over after 0.7 s: \d of 4 requests were answered"):
        measure(Faulty(late, good=0), replace(LIMITS, run_timeout_s=0.7))
    assert time.monotonic() - begin_s < 10


def test_a_warm_up_that_fails_says_why_before_anything_is_measured() -> None:
    server = Faulty(FAULTS["404"][0], good=0)
    with (
        served(server) as url,
        pytest.raises(UserError, match="the first requests failed: HTTP 404"),
    ):
        measure_load(Endpoint.at(url), "m", plan(4, warmup=1), LIMITS)
    assert server.requests == 1


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("no openssl here to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ["req", "-x509", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *words, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = Faulty(stream(GOOD))
    with (
        served(server, context) as url,
        pytest.raises(UserError, match=r"no trusted TLS connection: .*self.signed certificate"),
    ):
        measure_load(Endpoint.at(url), "m", LOAD, LIMITS)
    assert not server.requests


def test_no_tls_where_https_was_asked_for() -> None:
    async def no_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with (
        served(no_tls) as url,
        pytest.raises(UserError, match=r"no trusted TLS connection|no connection"),
    ):
        measure_load(Endpoint.at(url.replace("http", "https")), "m", LOAD, LIMITS)


def test_secrets_that_a_server_gives_back_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "sk-12345")
    monkeypatch.setenv("SOME_HEADERS", "X-Team: blue42\nX-Other: green77")

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, headers, _ = await read_request(reader)
            writer.write(response("401 Unauthorized", "text/plain", f"who are you? {headers}"))

    with served(echo) as url:
        endpoint = Endpoint.at(url, api_key_env="A_KEY", header_env="SOME_HEADERS")
        with pytest.raises(UserError, match=r"401 Unauthorized: who are you\?") as caught:
            measure_load(endpoint, "m", LOAD, LIMITS)
    for secret in ("sk-12345", "blue42", "green77"):
        assert secret not in f"{caught.value} {endpoint!r}"
