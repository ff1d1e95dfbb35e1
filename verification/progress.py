"""How far a verification is, on stderr."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dynosim.verification.schedule import Turn

if TYPE_CHECKING:
    from rich.progress import Progress


def duration_text(seconds: float) -> str:
    """Returns a duration as a person says it."""
    if seconds < 90:
        return f"{math.ceil(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Bar:
    """A progress bar with time left, on stderr; silent where that is no terminal."""

    def __init__(self, turns: int, tell: Callable[[str], None], *, is_silent: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        self._tell = tell
        self._bar: Progress = Progress(
            TextColumn("measuring"),
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=is_silent or not console.is_terminal,
        )
        self._total = turns
        self._done = self._kept = 0
        self._began_s = time.monotonic()
        self._task = self._bar.add_task("", total=self._total)
        self._is_measuring = False

    def begins(self, turn: Turn) -> None:
        self._is_measuring = True
        self._show(f"trial {turn.pick.number}, round {turn.repeat}")

    def ended(self, turn: Turn, failure: str | None = None) -> None:
        self._done += 1
        # What an earlier call measured took no time of this one.
        self._kept += not self._is_measuring
        if failure is not None:
            self._tell(f"trial {turn.pick.number}, round {turn.repeat} failed: {failure}")
        self._show(f"trial {turn.pick.number}, round {turn.repeat} done")

    def _show(self, text: str) -> None:
        measured = self._done - self._kept
        if measured > 0:
            left_s = (time.monotonic() - self._began_s) / measured * (self._total - self._done)
            text += f", about {duration_text(left_s)} left"
        self._bar.update(self._task, completed=self._done, description=text)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._bar.stop()
