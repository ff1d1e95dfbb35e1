"""What a measurement needs of a device; the one implementation is ``torch_bench``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dynosim.hardware_models.measure.case import Case
from dynosim.hardware_models.measure.timing import Sample


@dataclass(frozen=True)
class Kernel:
    """One way to run a shape: its name, and what runs it once and returns the seconds."""

    name: str
    sample: Sample


class Bench(Protocol):
    """A device with a library that runs ops on it."""

    def origin(self) -> dict[str, Any]:
        """Device string, driver and library versions, and how kernels are launched."""
        ...

    def kernels(self, case: Case) -> list[Kernel]:
        """The kernels that can run this shape, ready to be sampled.

        Raises :class:`~.case.Unsupported` where there are none, and whatever the library raises.
        """
        ...

    def state(self) -> Mapping[str, Any] | None:
        """Clocks, temperature, power now; None where nothing here tells them."""
        ...

    def is_well(self) -> bool:
        """Whether the device still answers after an error."""
        ...

    def close(self) -> None:
        """Ends what the bench started."""
        ...
