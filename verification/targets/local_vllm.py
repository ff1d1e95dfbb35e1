"""vLLM on this machine: started for each candidate, loaded over HTTP, stopped."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Candidate, need_backend
from dynosim.planning.exports.vllm import arguments
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.observed import ObservedRun
from dynosim.verification.subprocess_group import running
from dynosim.verification.target import EngineFailed, Running, Target, TargetOptions
from dynosim.verification.targets import url
from dynosim.verification.vllm_log import facts_of

NAME = "local-vllm"
COMMAND = ("vllm",)
HOST = "127.0.0.1"
TAIL_LINES = 6
_TAIL_BYTES = 65_536
_ERROR = re.compile(r"\b\w+(?:Error|Exception): ")
_POLL_S = 0.25
_DYING_S = 2.0
"""Seconds from a connection that breaks to the end of a process that broke it."""


def make(options: TargetOptions) -> Target:
    """Returns the target; ``options.command`` starts vLLM's command line, by default ``vllm``."""
    return LocalVllm(options)


class LocalVllm:
    """Starts ``vllm serve`` with the candidate's flags on a free port, one replica of it."""

    def __init__(self, options: TargetOptions) -> None:
        self._options = options

    @contextmanager
    def run(self, candidate: Candidate) -> Iterator[Running]:
        """Yields the engine once it is healthy; its log is ``vllm.log`` in the options' folder."""
        check(candidate)
        port = _free_port()
        argv = command(candidate, self._options, port)
        self._options.folder.mkdir(parents=True, exist_ok=True)
        log = self._options.folder / "vllm.log"
        begin_s = time.monotonic()
        with running(argv, log, env=_environment()) as process:
            _wait_healthy(process, port, log, self._options.start_timeout_s)
            started_s = time.monotonic() - begin_s
            model = self._options.model or candidate.model
            options = replace(self._options, url=f"http://{HOST}:{port}", model=model)
            with url.make(options).run(candidate) as client:
                yield _Logged(client, process, log, started_s)


def command(candidate: Candidate, options: TargetOptions, port: int) -> list[str]:
    """Returns the whole command of one start; the user's own arguments come last and win."""
    start = options.command or COMMAND
    place = ["--host", HOST, "--port", str(port)]
    return [*start, "serve", *arguments(candidate), *place, *options.arguments]


def check(candidate: Candidate) -> None:
    """Raises UserError for a candidate that this target cannot start."""
    need_backend(candidate, "local-vllm", "vllm")
    deployment = candidate.deployment
    if deployment.prefill_replicas:
        raise UserError("local-vllm does not start two pools", where="prefill_replicas")
    if deployment.replicas > 1:
        raise UserError(
            f"local-vllm starts one replica, the candidate has {deployment.replicas}",
            where="replicas",
            hint="start them behind a load balancer and give its --url",
        )


def _environment() -> dict[str, str]:
    # Lines of a log that is read while it is written must not wait in a buffer.
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def _wait_healthy(process: subprocess.Popen[bytes], port: int, log: Path, timeout_s: float) -> None:
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        if (code := process.poll()) is not None:
            message = f"vLLM ended with code {code} before it was healthy"
            raise EngineFailed(f"{message}\n{tail(log)}", where=NAME, hint=_its_log(log))
        if _is_healthy(port):
            return
        time.sleep(_POLL_S)
    message = f"vLLM was not healthy within {timeout_s:g} s\n{tail(log)}"
    raise UserError(message, where=NAME, hint=_its_log(log))


def _is_healthy(port: int) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{HOST}:{port}/health", timeout=5.0) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """Returns the code of a process that has ended, or is just about to; None for one that runs."""
    try:
        return process.wait(_DYING_S)
    except subprocess.TimeoutExpired:
        return None


def tail(log: Path) -> str:
    """Returns the last lines of a log, below the last complaint before them."""
    lines = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").splitlines()
    # Warnings of helper processes come after what an engine dies of.
    complaints = [line for line in lines[:-TAIL_LINES] if _ERROR.search(line)]
    shown = [*complaints[-1:], *lines[-TAIL_LINES:]]
    return "\n".join(f"  | {line}" for line in shown) or "  | (its log is empty)"


def _its_log(log: Path) -> str:
    return f"its log: {log}"


@dataclass(frozen=True)
class _Logged:
    """A client of the engine whose observations have what the engine's log says."""

    client: Running
    process: subprocess.Popen[bytes]
    log: Path
    started_s: float

    def measure(self, plan: LoadPlan) -> ObservedRun:
        try:
            seen = self.client.measure(plan)
        except UserError as error:
            if (code := _ended(self.process)) is None:
                raise
            message = f"vLLM ended with code {code} under load: {error.message}"
            raise EngineFailed(
                f"{message}\n{tail(self.log)}", where=NAME, hint=_its_log(self.log)
            ) from None
        text = self.log.read_text(encoding="utf-8", errors="replace")
        facts = {**facts_of(text), "startup_total_s": self.started_s}
        return replace(seen, facts={**seen.facts, **facts})
