"""What a search gives back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dynosim.search.convergence import Convergence, convergence
from dynosim.search.frontier import cheapest, frontier, hypervolume, knee, reference_point
from dynosim.search.outcome import Outcome, Screen
from dynosim.search.short_list import short_list
from dynosim.search.space import SearchSpace
from dynosim.search.trial import Trial
from dynosim.sim.deployment import Deployment

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from dynosim.search.chance import Chance
    from dynosim.search.importance import Importance
    from dynosim.search.landscape import Landscape
    from dynosim.search.screening import Screening

Mode = Literal["exhaustive", "screened", "tpe"]
Ending = Literal["finished", "timeout", "interrupted"]


def as_it_is(deployment: Deployment) -> Deployment:
    return deployment


def no_refusal(deployment: Deployment) -> Outcome | None:
    return None


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """Trials by number, and what follows from them.

    ``ending`` is ``interrupted`` after Ctrl-C: the trials are those that had ended by then.
    ``simulated_here`` of them were simulated by this call, the others came from its journal.
    ``screening`` are the estimates that led the search, ``spelled`` returns a deployment with its
    defaults in it, ``screen`` says why a candidate cannot run. ``shares_best`` says of trials near
    the frontier, by number, in which share of the replicates nothing dominated them; empty without
    replicates. ``is_open`` says that requests arrive at their own times, so that their rate is the
    load's.
    """

    space: SearchSpace
    trials: tuple[Trial, ...]
    mode: Mode
    ending: Ending = "finished"
    workers: int = 1
    wall_s: float = 0.0
    simulated_here: int = 0
    output_dir: Path | None = None
    screening: Screening | None = None
    spelled: Callable[[Deployment], Deployment] = as_it_is
    screen: Screen = no_refusal
    shares_best: Mapping[int, float] = field(default_factory=dict)
    is_open: bool = True

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

    @cached_property
    def short_list(self) -> list[Trial]:
        """The frontier without near duplicates: the simplest trials within 1 % of it."""
        return short_list(
            self.frontier, self.trials, self.space.objectives, self.spelled, first=self.knee
        )

    @cached_property
    def landscape(self) -> Landscape | None:
        """What simulations and estimates say of every candidate; None where they say nothing."""
        from dynosim.search.landscape import landscape

        return landscape(self.space, self.trials, self.screening)

    @cached_property
    def importances(self) -> list[Importance]:
        """How much each field decides each objective; empty where only a sample is known."""
        from dynosim.search.importance import importances

        is_sample = self.screening is not None and not self.screening.is_whole
        known = None if self.mode == "tpe" or is_sample else self.landscape
        return [] if known is None else importances(known)

    @cached_property
    def p_non_dominated(self) -> Mapping[int, float]:
        """The probability that a trial on or near the frontier, by number, is truly non-dominated.

        See :mod:`dynosim.search.chance`; without trials that nothing was measured like.
        """
        return {number: chance.alone for number, chance in self.chances.items()}

    @cached_property
    def chances(self) -> Mapping[int, Chance]:
        """How likely a trial, alone or with those predicted alike, is truly non-dominated."""
        from dynosim.search.chance import chances

        space = self.space
        return chances(
            self.frontier, self.trials, space.objectives, is_open=self.is_open, seed=space.seed
        )

    @cached_property
    def convergence(self) -> Convergence:
        """How the hypervolume grew with the simulations."""
        return convergence(self.trials, self.space.objectives)

    @property
    def reasons(self) -> Counter[str]:
        """How many trials are infeasible, by reason."""
        return Counter(t.reason for t in self.trials if t.reason is not None)

    @property
    def hypervolume(self) -> float:
        """The volume that the frontier dominates; see :func:`reference_point`."""
        reference = reference_point(self.trials, self.space.objectives)
        return hypervolume(self.frontier, self.space.objectives, reference)

    def trial(self, number: int) -> Trial:
        """Returns the trial of a number; UserError where there is none."""
        from dynosim.search.explanation import trial_of

        return trial_of(self, number)

    def explain(self, number: int) -> str:
        """Returns what a trial is, what dominates it, and what one changed field would do."""
        from dynosim.search.explanation import explain_trial

        return "\n".join(explain_trial(self, number, self.screen))

    def neighbours(self, number: int) -> pd.DataFrame:
        """Returns what one changed field of a trial would do, a row each.

        Columns ``field``, ``value``, an objective's relative change each, ``is_simulated`` (else
        estimated) and ``reason`` why a neighbour cannot run.
        """
        from dynosim.search.sensitivity import neighbour_frame

        return neighbour_frame(self.trial(number).deployment, self.landscape, self.screen)

    def to_frame(self) -> pd.DataFrame:
        """Returns all trials, a row each, with the columns of ``trials.csv``."""
        import pandas as pd

        from dynosim.search.table import trial_columns, trial_rows

        return pd.DataFrame(trial_rows(self), columns=trial_columns(self))

    def plot(
        self, metrics: tuple[str, str] | None = None, *, has_intervals: bool = False
    ) -> Figure:
        """Returns the figure that is saved as ``frontier.png``; on other ``metrics`` (across, up).

        ``has_intervals`` draws where four measurements in five of the frontier are expected.
        """
        from dynosim.search.figure import frontier_figure

        return frontier_figure(self, metrics, has_intervals=has_intervals)
