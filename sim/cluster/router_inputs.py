"""What a run provides to routers that ask for it."""

from __future__ import annotations

from dynosim.sim.cluster.prefix_index import PrefixIndex
from dynosim.sim.cluster.prompts import Prompts
from dynosim.sim.cluster.time_prediction import StepTimes, TimePrediction


class RouterInputs:
    """Made before the engines are; ``index`` and ``prediction`` are None until somebody asks."""

    def __init__(self, prompts: Prompts, step_times: StepTimes, event_lag_s: float) -> None:
        self.prompts = prompts
        self.index: PrefixIndex | None = None
        self.prediction: TimePrediction | None = None
        self._step_times = step_times
        self._event_lag_s = event_lag_s

    def prefixes(self) -> PrefixIndex:
        """Returns the index of all prefix caches, which from now on are to be watched."""
        if self.index is None:
            self.index = PrefixIndex(self.prompts, self._event_lag_s)
        return self.index

    def times(self) -> TimePrediction:
        """Returns what predicts a request's times at a replica."""
        if self.prediction is None:
            self.prediction = TimePrediction(self._step_times)
        return self.prediction
