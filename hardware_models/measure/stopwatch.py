"""Seconds of calls on a device: by CUDA events around graph replays, or by the CPU's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

from dynosim.hardware_models.measure.lab import Call, Lab
from dynosim.hardware_models.measure.timing import Sample

SAMPLE_S = 1e-3
"""Calls are repeated within one sample until it lasts this long: CUDA events tick at 0.5 us
(CUDA runtime API, cudaEventElapsedTime)."""

MOST_CALLS = 200


@dataclass(frozen=True, eq=False)
class Stopwatch:
    """Makes samplers. ``graphs``: calls are captured in a CUDA graph, as engines do to decode;
    without it they are launched one by one, and short ones last as long as a launch."""

    lab: Lab
    graphs: bool

    def sample(self, calls: list[Call]) -> Sample:
        """Returns the sampler of equal calls, run in turn.

        It is made when it first runs, so that a kernel that the device refuses fails alone.
        """
        made: list[Sample] = []

        def sample() -> float:
            if not made:
                made.append(self._sampler(calls))
            return made[0]()

        return sample

    def seconds(self, calls: list[Call]) -> float:
        """Returns the seconds that the calls take together."""
        return gpu_seconds(self.lab.torch, calls) if self.lab.on_gpu else self._cpu(calls)

    def _sampler(self, calls: list[Call]) -> Sample:
        for _ in range(2):
            calls[0]()
        once = max(1e-7, min(self.seconds(calls[:1]) for _ in range(3)))
        count = min(MOST_CALLS, max(ceil(SAMPLE_S / once), 1 if once > SAMPLE_S else len(calls)))
        in_turn = [calls[i % len(calls)] for i in range(count)]
        if not self.graphs:
            return lambda: self.seconds(in_turn) / count
        replay = captured(self.lab.torch, in_turn)
        return lambda: self.seconds([replay]) / count

    def _cpu(self, calls: list[Call]) -> float:
        clock, _ = cpu_clock(self.lab.torch)
        begin = clock()
        for call in calls:
            call()
        return clock() - begin


def gpu_seconds(torch: Any, calls: list[Call]) -> float:
    """Returns the seconds between two events around the calls, on the current stream."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for call in calls:
        call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3


def captured(torch: Any, calls: list[Call]) -> Call:
    """Returns the replay of a CUDA graph of the calls."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        calls[0]()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    # The graph does not own what the calls read: the list keeps it alive as long as the replay.
    keep = list(calls)

    def replay() -> int:
        graph.replay()
        return len(keep)

    return replay


def cpu_clock(torch: Any) -> tuple[Callable[[], float], str]:
    """Returns a clock and its name: with one thread the process's own, which a busy machine does
    not stretch."""
    if torch.get_num_threads() == 1:
        return time.process_time, "process"
    return time.perf_counter, "wall"
