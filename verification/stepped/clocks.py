"""What a step costs, by different clocks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import Any, Protocol

from dynosim.verification.stepped.engine import EngineStep

Step = Callable[[], EngineStep]


class Clock(Protocol):
    """Times the steps of one run after another."""

    @property
    def name(self) -> str:
        """What times were read from, as an observed run names it."""
        ...

    def begin(self) -> None:
        """Is called before the steps of a run."""
        ...

    def timed(self, step: Step) -> tuple[EngineStep, float]:
        """Runs a step; returns what it did and its cost in seconds."""
        ...

    def facts(self) -> Mapping[str, float]:
        """Returns what the clock has to say of the run since it began."""
        ...


class Stopwatch:
    """Reads ``read`` before and after a step."""

    def __init__(self, name: str, read: Callable[[], float]) -> None:
        self.name = name
        self._read = read

    def begin(self) -> None:
        """Does nothing."""

    def timed(self, step: Step) -> tuple[EngineStep, float]:
        """Returns what the step did, and the difference of the readings."""
        start = self._read()
        done = step()
        return done, self._read() - start

    def facts(self) -> Mapping[str, float]:
        """Returns nothing."""
        return {}


def wall(synchronise: Callable[[], object] = lambda: None) -> Clock:
    """Returns the clock on the wall; ``synchronise`` waits for a device to have finished."""

    def read() -> float:
        synchronise()
        return time.perf_counter()

    return Stopwatch("wall", read)


def process_cpu() -> Clock:
    """Returns the processor seconds of this process, which other jobs stretch little.

    They are those of all its threads together: let an engine that is timed so have one.
    """
    return Stopwatch("process-cpu", time.process_time)


class CudaEvents:
    """Events on PyTorch's current stream: from when the GPU is ready to its last kernel's end.

    What the host does after that (reading tokens, updating its lists) is not in it.
    """

    name = "cuda"

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def begin(self) -> None:
        """Waits for what is under way."""
        self._torch.cuda.synchronize()

    def timed(self, step: Step) -> tuple[EngineStep, float]:
        """Returns what the step did, and the seconds between the events around it."""
        first, last = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        done = step()
        last.record()
        last.synchronize()
        return done, float(first.elapsed_time(last)) * 1e-3

    def facts(self) -> Mapping[str, float]:
        """Returns nothing."""
        return {}


class Reported:
    """The engine's own word for what a step cost."""

    def __init__(self, name: str) -> None:
        self.name = name

    def begin(self) -> None:
        """Does nothing."""

    def timed(self, step: Step) -> tuple[EngineStep, float]:
        """Returns what the step did, and what it says it cost."""
        done = step()
        assert done.own_s is not None, "this engine does not time its steps"
        return done, done.own_s

    def facts(self) -> Mapping[str, float]:
        """Returns nothing."""
        return {}


class Replayed:
    """Costs that were measured before, step by step: another engine sees the same clock."""

    name = "replayed"

    def __init__(self, costs_s: Iterable[float]) -> None:
        self._costs_s = iter(costs_s)

    def begin(self) -> None:
        """Does nothing: the costs go on where they are."""

    def timed(self, step: Step) -> tuple[EngineStep, float]:
        """Returns what the step did, and the next cost; 0 where there are no more."""
        return step(), next(self._costs_s, 0.0)

    def facts(self) -> Mapping[str, float]:
        """Returns nothing."""
        return {}


WINDOW = 9
"""Probes whose median says how fast the machine is now."""

CALIBRATION = 31
"""Probes whose median is the machine's speed that costs are given for."""


class Probed:
    """Another clock, freed of how fast the machine happens to be.

    ``mix`` is fixed work of about two milliseconds, alike what the engine does. It is timed by the
    other clock after every step; a step's cost is divided by the median of the last ``WINDOW``
    probes and multiplied by ``reference_s``: the median of the first ones, unless given, so that
    runs of another process can be told in the same seconds.
    """

    def __init__(
        self, clock: Clock, mix: Callable[[], object], reference_s: float | None = None
    ) -> None:
        self.name = f"{clock.name}, probed"
        self._clock = clock
        self._mix = mix
        first = [self._probe_s() for _ in range(CALIBRATION)]
        self.reference_s = reference_s or median(first)
        self._last = deque(first[-WINDOW:], maxlen=WINDOW)
        self._medians = [median(self._last)]

    def _probe_s(self) -> float:
        def run() -> EngineStep:
            self._mix()
            return EngineStep(work=(), new_tokens={})

        return self._clock.timed(run)[1]

    def begin(self) -> None:
        """Starts to note drift anew, with the probes of now."""
        self._clock.begin()
        self._last.extend(self._probe_s() for _ in range(WINDOW))
        self._medians = [median(self._last)]

    def timed(self, step: Step) -> tuple[EngineStep, float]:
        """Returns what the step did, and its cost on a machine of the reference speed."""
        done, seconds = self._clock.timed(step)
        self._last.append(self._probe_s())
        self._medians.append(median(self._last))
        return done, seconds * self.reference_s / self._medians[-1]

    def facts(self) -> Mapping[str, float]:
        """Returns the reference, and the drift: the 90th over the 10th percentile of the rolling
        medians, less 1. What is slow for a few steps is evened out."""
        ordered = sorted(self._medians)
        last = len(ordered) - 1
        drift = ordered[round(0.9 * last)] / ordered[round(0.1 * last)] - 1.0
        return {"probe_reference_s": self.reference_s, "probe_drift": drift}
