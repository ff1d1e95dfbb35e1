"""How far a search is, on stderr."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from dynosim.search.frontier import frontier, hypervolume, reference_point
from dynosim.search.space import SearchSpace
from dynosim.search.trial import Trial

if TYPE_CHECKING:
    from rich.console import Console


class Progress(Protocol):
    """Told of every trial as it ends; a context manager around the search."""

    def begin(self, space: SearchSpace, simulations: int) -> None:
        """Learns what is to come."""

    def update(self, trial: Trial) -> None:
        """Learns of one more trial."""

    def __enter__(self) -> Progress: ...

    def __exit__(self, *ended: object) -> None: ...


class Silent:
    """Reports nothing."""

    def begin(self, space: SearchSpace, simulations: int) -> None:
        pass

    def update(self, trial: Trial) -> None:
        pass

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *ended: object) -> None:
        pass


class Tally:
    """Counts of a search under way, and the frontier so far."""

    def __init__(self, space: SearchSpace, simulations: int) -> None:
        self.space, self.simulations = space, simulations
        self.simulated = self.feasible = self.trials = 0
        self.front: Sequence[Trial] = ()
        self._begin_s = time.monotonic()

    def add(self, trial: Trial) -> None:
        """Counts one more trial."""
        self.trials += 1
        self.simulated += trial.is_simulated
        if trial.is_feasible:
            self.feasible += 1
            self.front = frontier([*self.front, trial], self.space.objectives)

    def text(self) -> str:
        """Returns rate, feasible share, frontier size and hypervolume in one line."""
        rate = self.simulated / max(time.monotonic() - self._begin_s, 1e-9)
        share = self.feasible / max(self.trials, 1)
        objectives = self.space.objectives
        volume = hypervolume(self.front, objectives, reference_point(self.front, objectives))
        return (
            f"{rate:.1f} trials/s · {share:.0%} feasible · {len(self.front)} on the frontier"
            f" · hypervolume {volume:.4g}"
        )


class Bar:
    """A progress bar with time left, for a terminal; silent where ``console`` is none."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console as RichConsole
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._console = console or RichConsole(stderr=True)
        self._bar = Progress(
            TextColumn("searching"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.description}"),
            console=self._console,
            refresh_per_second=4,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._tally: Tally | None = None

    def begin(self, space: SearchSpace, simulations: int) -> None:
        self._tally = Tally(space, simulations)
        self._task = self._bar.add_task("", total=simulations)

    def update(self, trial: Trial) -> None:
        if self._tally is None:
            return
        self._tally.add(trial)
        if not self._bar.disable:
            self._bar.update(
                self._task, completed=self._tally.simulated, description=self._tally.text()
            )

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._bar.stop()
