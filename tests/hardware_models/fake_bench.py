"""A device without PyTorch: kernels that take what they are told, and ledgers of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynosim.hardware_models.measure.bench import Kernel
from dynosim.hardware_models.measure.case import Case, Timing, Unsupported
from dynosim.hardware_models.measure.grid import plan, read_grid
from dynosim.hardware_models.measure.ledger import Ledger


class Clock:
    """A clock that only the fake kernels move."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class FakeBench:
    """Kernels that take ``seconds[family]`` by the clock (an exception there is raised)."""

    def __init__(self, clock: Clock, device: str = "Abacus", **seconds: Any) -> None:
        self.clock, self.device, self.seconds = clock, device, seconds
        self.asked: list[Case] = []
        self.well = True

    def origin(self) -> dict[str, Any]:
        return {"device": self.device, "torch": "2.9.0", "launch": "graph"}

    def kernels(self, case: Case) -> list[Kernel]:
        self.asked.append(case)
        takes = self.seconds.get(case.family, 1e-3)
        if isinstance(takes, Unsupported):
            raise takes
        options = takes if isinstance(takes, dict) else {"fake": takes}
        return [Kernel(name, self._sample(s)) for name, s in options.items()]

    def _sample(self, takes: Any) -> Any:
        def sample() -> float:
            if isinstance(takes, BaseException):
                raise takes
            self.clock.now_s += takes
            return float(takes)

        return sample

    def state(self) -> Mapping[str, Any]:
        return {"at": self.clock(), "sm_clock_mhz": 1980.0, "temperature_c": 40 + self.clock()}

    def is_well(self) -> bool:
        return self.well

    def close(self) -> None:
        return


def gemms(*m: int, dtype: str = "bfloat16") -> list[Case]:
    return [Case("gemm", (dtype, 4096, 4096, tokens)) for tokens in m]


def opened(tmp_path: Path, bench: FakeBench) -> Ledger:
    return Ledger.open(tmp_path / "ledger.jsonl", bench.origin())


def timed(median_s: float) -> Timing:
    return Timing(median_s, median_s, median_s, 5, 0.0, 0.0, 0.0, "fake")


def small_ledger(tmp_path: Path, device: str) -> Ledger:
    """A ledger of the small grid at 1 us a call, and 1 ns a byte for copies."""
    bench = FakeBench(Clock(), device)
    ledger = opened(tmp_path, bench)
    for case in plan(read_grid("small")):
        key = case.key
        ledger.record(case, timed(1e-9 * key["bytes"] if case.family == "copy" else 1e-6))
    return ledger
