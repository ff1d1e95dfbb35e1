"""Tensors on a device, cold where a serving engine would find them cold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.measure.case import Unsupported

Call = Callable[[], Any]

DTYPES = {
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float32": "float32",
    "fp8": "float8_e4m3fn",
}
"""Names of the tables' dtypes in PyTorch."""

COLD = 2.0
"""Copies of weights are rotated until together they are this many times the last-level cache."""

MOST_COPIES = 64

MEMORY_SHARE = 0.8
"""Share of the free memory that one shape may take."""

CPU_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
CPU_CACHE_BYTES = 32 * 2**20
"""Last-level cache assumed where the system does not tell it."""


def import_torch() -> Any:
    """Returns PyTorch; UserError with the command that installs it where it is missing."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise UserError(
            f"measuring needs PyTorch, which is not installed ({error})",
            hint="pip install 'dynosim[measure]'",
        ) from error
    return torch


@dataclass(frozen=True)
class Calls:
    """A kernel's name and equal calls on different copies of what is cold, to be run in turn."""

    name: str
    calls: list[Call]


@dataclass(frozen=True, eq=False)
class Lab:
    """PyTorch and one of its devices (``cuda:0``, ``cpu``).

    ``wide`` is the dtype of activations that no table names; ``engine`` the module of
    :mod:`~.engines` whose kernels stand in for PyTorch's, None for none.
    """

    torch: Any
    device: Any
    wide: str = "bfloat16"
    engine: Any = None

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return bool(self.device.type == "cuda")

    @cached_property
    def properties(self) -> Any:
        """CUDA's description of the device; only on a GPU."""
        return self.torch.cuda.get_device_properties(self.device)

    @cached_property
    def cache_bytes(self) -> int:
        """Size of the last-level cache."""
        if self.on_gpu:
            return int(self.properties.L2_cache_size)
        try:
            return int(CPU_CACHE.read_text().strip().removesuffix("K")) * 1024
        except (OSError, ValueError):
            return CPU_CACHE_BYTES

    def free_bytes(self) -> int:
        """Returns the memory left on the device."""
        if self.on_gpu:
            cached = self.torch.cuda.memory_reserved(self.device)
            used = self.torch.cuda.memory_allocated(self.device)
            return int(self.torch.cuda.mem_get_info(self.device)[0] + cached - used)
        import os

        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def dtype(self, name: str) -> Any:
        """Returns PyTorch's dtype; Unsupported where it or the device has none of that name."""
        found = getattr(self.torch, DTYPES.get(name, ""), None)
        if found is None:
            raise Unsupported(f"no PyTorch dtype for {name}")
        return found

    def bytes_of(self, dtype: str, *sizes: int) -> int:
        """Returns the bytes of a tensor."""
        count = self.dtype(dtype).itemsize
        for size in sizes:
            count *= size
        return int(count)

    def normal(self, dtype: str, *shape: int) -> Any:
        """Returns a tensor of normal deviates: zeros would take less power than data does."""
        torch, wanted = self.torch, self.dtype(dtype)
        drawn = torch.bfloat16 if wanted.itemsize == 1 else wanted
        made = torch.randn(shape, dtype=drawn, device=self.device)
        return made if made.dtype == wanted else made.to(wanted)

    def copies(self, cold_bytes: int, warm_bytes: int = 0) -> int:
        """Returns how many copies of ``cold_bytes`` defeat the cache.

        Unsupported where even one, beside ``warm_bytes``, does not fit into memory.
        """
        room = MEMORY_SHARE * self.free_bytes() - warm_bytes
        if cold_bytes > room:
            raise Unsupported(
                f"needs {(cold_bytes + warm_bytes) / 2**30:.1f} GiB, "
                f"{self.free_bytes() / 2**30:.1f} GiB are free"
            )
        wanted = ceil(COLD * self.cache_bytes / max(1, cold_bytes))
        return max(1, min(wanted, MOST_COPIES, int(room // max(1, cold_bytes))))
