"""What a sample times, on a pretended GPU whose kernels move a pretended clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from math import ceil
from types import SimpleNamespace
from typing import Any

import pytest

from dynosim.hardware_models.measure.lab import Lab
from dynosim.hardware_models.measure.stopwatch import MOST_CALLS, SAMPLE_S, Stopwatch

LAUNCH_S = 5e-6
"""What launching a kernel, or a graph, takes here."""


class Gpu:
    """As much of ``torch.cuda`` as a stopwatch asks for; graphs launch once for all kernels."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ran: list[str] = []
        self.captured: list[tuple[str, float]] | None = None
        self.cuda = SimpleNamespace(
            Event=self._event,
            Stream=lambda: SimpleNamespace(wait_stream=lambda other: None),
            current_stream=lambda: SimpleNamespace(wait_stream=lambda other: None),
            stream=lambda stream: nullcontext(),
            synchronize=lambda: None,
            CUDAGraph=lambda: SimpleNamespace(kernels=[], replay=None),
            graph=self._graph,
        )

    def kernel(self, name: str, seconds: float) -> Any:
        def call() -> None:
            if self.captured is not None:
                self.captured.append((name, seconds))
            else:
                self.now_s += max(LAUNCH_S, seconds)
                self.ran.append(name)

        return call

    def _event(self, enable_timing: bool) -> Any:
        event = SimpleNamespace(at=0.0, synchronize=lambda: None)
        event.record = lambda: setattr(event, "at", self.now_s)
        event.elapsed_time = lambda other: (other.at - event.at) * 1e3
        return event

    @contextmanager
    def _graph(self, graph: Any) -> Iterator[None]:
        self.captured = kernels = []
        yield
        self.captured = None

        def replay() -> None:
            self.now_s += LAUNCH_S + sum(seconds for _, seconds in kernels)
            self.ran.extend(name for name, _ in kernels)

        graph.replay = replay


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


def watch(gpu: Gpu, *, graphs: bool) -> Stopwatch:
    return Stopwatch(Lab(gpu, SimpleNamespace(type="cuda")), graphs)


def test_a_graph_hides_launches_that_eager_calls_show(gpu: Gpu) -> None:
    calls = [gpu.kernel("k", 1e-6)]
    eager = watch(gpu, graphs=False).sample(calls)()
    graph = watch(gpu, graphs=True).sample(calls)()
    assert eager == pytest.approx(LAUNCH_S)
    assert graph == pytest.approx(1e-6, rel=0.05)


def test_calls_repeat_until_a_sample_is_long_enough_to_time(gpu: Gpu) -> None:
    sample = watch(gpu, graphs=True).sample([gpu.kernel("k", 30e-6)])
    sample()
    gpu.ran.clear()
    sample()
    assert len(gpu.ran) == ceil(SAMPLE_S / 30e-6)
    short = watch(gpu, graphs=True).sample([gpu.kernel("k", 1e-7)])
    short()
    gpu.ran.clear()
    short()
    assert len(gpu.ran) == MOST_CALLS


def test_copies_of_cold_weights_take_turns(gpu: Gpu) -> None:
    """Even where fewer calls would be long enough, every copy is used: none stays in the cache."""
    sample = watch(gpu, graphs=True).sample([gpu.kernel(str(i), 0.5e-3) for i in range(8)])
    sample()
    gpu.ran.clear()
    sample()
    assert gpu.ran == [str(i) for i in range(8)]


def test_a_long_call_is_timed_alone(gpu: Gpu) -> None:
    sample = watch(gpu, graphs=True).sample([gpu.kernel(str(i), 0.1) for i in range(4)])
    assert sample() == pytest.approx(0.1, rel=1e-3)
    gpu.ran.clear()
    sample()
    assert gpu.ran == ["0"]


def test_a_kernel_that_the_device_refuses_fails_when_sampled_not_before(gpu: Gpu) -> None:
    def refused() -> None:
        raise RuntimeError("no such kernel")

    sample = watch(gpu, graphs=True).sample([refused])
    with pytest.raises(RuntimeError, match="no such kernel"):
        sample()
