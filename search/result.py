"""What a search gives back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dynosim.search.frontier import cheapest, frontier, hypervolume, knee, reference_point
from dynosim.search.space import SearchSpace
from dynosim.search.trial import Trial

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Mode = Literal["exhaustive", "screened", "tpe"]
Ending = Literal["finished", "timeout", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """Trials by number, and what follows from them.

    ``ending`` is ``interrupted`` after Ctrl-C: the trials are those that had ended by then.
    ``simulated_here`` of them were simulated by this call, the others came from its journal.
    """

    space: SearchSpace
    trials: tuple[Trial, ...]
    mode: Mode
    ending: Ending = "finished"
    workers: int = 1
    wall_s: float = 0.0
    simulated_here: int = 0
    output_dir: Path | None = None

    @cached_property
    def frontier(self) -> list[Trial]:
        """The non-dominated feasible trials, in rising order of the first objective."""
        return frontier(self.trials, self.space.objectives)

    @cached_property
    def knee(self) -> Trial | None:
        """The frontier's point of best balance; None where it has no bulge."""
        return knee(self.frontier, self.space.objectives)

    @cached_property
    def cheapest(self) -> Trial | None:
        """The feasible trial (within all SLOs) of the lowest hourly price."""
        return cheapest(self.trials, self.space.objectives)

    @property
    def reasons(self) -> Counter[str]:
        """How many trials are infeasible, by reason."""
        return Counter(t.reason for t in self.trials if t.reason is not None)

    @property
    def hypervolume(self) -> float:
        """The volume that the frontier dominates; see :func:`reference_point`."""
        reference = reference_point(self.trials, self.space.objectives)
        return hypervolume(self.frontier, self.space.objectives, reference)

    def to_frame(self) -> pd.DataFrame:
        """Returns all trials, a row each, with the columns of ``trials.csv``."""
        import pandas as pd

        from dynosim.search.table import trial_columns, trial_rows

        return pd.DataFrame(trial_rows(self), columns=trial_columns(self))

    def plot(self) -> Figure:
        """Returns the figure that is saved as ``frontier.png``."""
        from dynosim.search.figure import frontier_figure

        return frontier_figure(self)
