"""A block that Ctrl-C does not cut in two."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[list[int]]:
    """Defers Ctrl-C to the end of the block, where it raises KeyboardInterrupt as usual.

    The block gets a list that is no longer empty once Ctrl-C was pressed. Outside the main thread
    it does nothing: Python delivers signals to the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    pending: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        pending.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield pending
    finally:
        signal.signal(signal.SIGINT, before)
    if pending:
        signal.raise_signal(signal.SIGINT)
