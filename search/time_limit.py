"""A block that may take so long and no longer."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raises TimeoutError in the block after ``seconds`` of wall time; None is no limit.

    In a main thread by the system's timer, which also wakes a block that sleeps; in other threads,
    and on Windows, at the block's next step of Python code.
    """
    if seconds is None:
        yield
        return
    is_main = threading.current_thread() is threading.main_thread()
    rings = _by_signal if is_main and hasattr(signal, "setitimer") else _by_thread
    with rings(seconds, f"took longer than {seconds:g} s"):
        yield


@contextmanager
def _by_signal(seconds: float, words: str) -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(words)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _by_thread(seconds: float, words: str) -> Iterator[None]:
    thread = ctypes.c_ulong(threading.get_ident())
    lock, rang, is_over = threading.Lock(), False, False

    def ring() -> None:
        nonlocal rang
        with lock:
            if not is_over:
                rang = True
                # Raised between two steps of that thread's Python code (CPython's C API).
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(TimeoutError))

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield
    except TimeoutError:
        if rang:
            raise TimeoutError(words) from None
        raise
    finally:
        with lock:
            is_over = True
        timer.cancel()
