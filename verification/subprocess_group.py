"""A program that is stopped, with all that it started, when its block ends in any way."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from dynosim.hardware_models.errors import UserError

_GUARD = "import os, signal, sys; sys.stdin.read(); os.killpg(int(sys.argv[1]), signal.SIGKILL)"
GRACE_S = 20.0
"""Seconds in which a program that was asked to stop may do so by itself."""


@contextmanager
def running(
    argv: Sequence[str],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    grace_s: float = GRACE_S,
    talks: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a program in a session of its own, its output in ``log``; yields its process.

    Where it ``talks``, its standard input and output are pipes, and only its errors go to ``log``.
    Ctrl-C in the terminal does not reach it; the block's end does, also that by Ctrl-C, SIGTERM,
    an exception, or the sudden death of this process. UserError where there is no such program.
    """
    with log.open("wb") as output, _terminable():
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else output,
                stderr=output,
                env=None if env is None else dict(env),
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(f"cannot be started: {error.strerror}", where=argv[0]) from None
        try:
            with _guarded(process.pid):
                yield process
        finally:
            _stop(process, grace_s)
            for pipe in filter(None, (process.stdin, process.stdout)):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _stop(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Asks the program to stop, then makes all it started; Ctrl-C while it waits does so at once.

    Only the program itself is asked: it ends its own processes in an order of its own.
    """
    try:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    finally:
        # Also where the leader has ended: what it started may not have. The group has the
        # leader's number, which stays taken while any member lives.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def _guarded(group: int) -> Iterator[None]:
    """Has a small process of its own kill the group once this process is there no more.

    It waits for the end of a pipe, which the system brings about however this process ends.
    """
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD, str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as guard:
        try:
            yield
        finally:
            guard.kill()


@contextmanager
def _terminable() -> Iterator[None]:
    """Makes SIGTERM end the block as an exception; the system's own way would skip clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
