"""Runs shapes through PyTorch: on a GPU as replays of CUDA graphs, on a CPU one by one."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.measure.bench import Kernel
from dynosim.hardware_models.measure.case import Case
from dynosim.hardware_models.measure.device_state import state_reader
from dynosim.hardware_models.measure.grid import OPS
from dynosim.hardware_models.measure.lab import Calls, Lab, import_torch
from dynosim.hardware_models.measure.stopwatch import Stopwatch, cpu_clock
from dynosim.hardware_models.registry import find_module

ENGINES = "dynosim.hardware_models.measure.engines"


class TorchBench:
    """Implements :class:`~.bench.Bench`. ``graphs`` replays CUDA graphs, as engines do to decode;
    without them kernels are launched one by one, and short ones last as long as a launch.
    ``threads`` are those of a CPU's kernels, ``wide`` the dtype of unquantised activations.
    ``engine`` names one of :mod:`~.engines` whose kernels are measured where it has any here."""

    def __init__(
        self,
        device: str,
        *,
        graphs: bool = True,
        threads: int = 1,
        wide: str = "bfloat16",
        engine: str | None = None,
    ) -> None:
        torch = import_torch()
        self._engine = engine
        self.lab = Lab(torch, _device(torch, device), wide, _engine(engine))
        torch.set_num_threads(threads)
        self.stopwatch = Stopwatch(self.lab, graphs and self.lab.on_gpu)
        torch.set_grad_enabled(False)
        torch.manual_seed(0)
        if self.lab.on_gpu:
            torch.cuda.set_device(self.lab.device)
        self._read_state = state_reader(_uuid(self.lab))

    def origin(self) -> dict[str, Any]:
        torch = self.lab.torch
        found: dict[str, Any] = {
            "device": device_name(self.lab),
            "torch": str(torch.__version__),
            "activations": self.lab.wide,
            "launch": "graph" if self.stopwatch.graphs else "eager",
        }
        if self._engine:
            found |= {"engine": self._engine, "engine_version": self.lab.engine.version()}
        if not self.lab.on_gpu:
            return found | {"threads": torch.get_num_threads(), "clock": cpu_clock(torch)[1]}
        properties = self.lab.properties
        return found | {
            "driver": _driver(),
            "cuda": str(torch.version.cuda or torch.version.hip),
            "cudnn": torch.backends.cudnn.version(),
            "nccl": _nccl(torch),
            "compute_capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "l2_cache_bytes": self.lab.cache_bytes,
            "memory_bytes": properties.total_memory,
            "num_gpus": torch.cuda.device_count(),
        }

    def kernels(self, case: Case) -> list[Kernel]:
        built: Sequence[Calls | Kernel] = find_module(OPS, "op", case.family).build(
            self.lab, case.key
        )
        return [
            b if isinstance(b, Kernel) else Kernel(b.name, self.stopwatch.sample(b.calls))
            for b in built
        ]

    def state(self) -> Mapping[str, Any] | None:
        return self._read_state()

    def is_well(self) -> bool:
        try:
            one = self.lab.torch.ones(1, device=self.lab.device)
            return bool((one + one).item() == 2.0)
        except RuntimeError:
            return False

    def close(self) -> None:
        find_module(OPS, "op", "nccl").close()


def _engine(name: str | None) -> Any:
    """Returns the engine's module; UserError where it is not known or not installed."""
    if name is None:
        return None
    engine = find_module(ENGINES, "engine", name)
    try:
        engine.version()
    except ImportError as error:
        hint = "install dynosim into the engine's own environment"
        raise UserError(f"{name} is not installed ({error})", where="--engine", hint=hint) from None
    return engine


def _device(torch: Any, wanted: str) -> Any:
    name = wanted
    if wanted == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.split(":")[0] not in ("cuda", "cpu"):
        raise UserError(
            f"found {wanted!r}", where="--device", hint="allowed: auto, cpu, cuda or cuda:N"
        )
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(
            f"this PyTorch ({torch.__version__}) sees no GPU",
            where="--device",
            hint="check nvidia-smi, and that PyTorch's build matches the driver; "
            "--device cpu measures the CPU",
        )
    index = name.partition(":")[2] or "0"
    if name.startswith("cuda") and not (index.isdigit() and int(index) < torch.cuda.device_count()):
        found = torch.cuda.device_count()
        raise UserError(f"no {name!r}: {found} GPUs are seen", where="--device")
    return torch.device(f"cuda:{index}" if name.startswith("cuda") else "cpu")


def device_name(lab: Lab) -> str:
    """Returns the device as its driver, or the CPU as its system, names it."""
    if lab.on_gpu:
        return str(lab.properties.name)
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            models = [line.partition(":")[2].strip() for line in file if "model name" in line]
    except OSError:
        models = []
    name = models[0] if models else platform.processor() or platform.machine()
    return f"{name} ({os.cpu_count()} cores)"


def _uuid(lab: Lab) -> str | None:
    if not lab.on_gpu:
        return None
    uuid = str(getattr(lab.properties, "uuid", ""))
    return f"GPU-{uuid.removeprefix('GPU-')}" if uuid else None


def _nccl(torch: Any) -> str:
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return "none"
    return ".".join(map(str, torch.cuda.nccl.version()))


def _driver() -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        version: Any = pynvml.nvmlSystemGetDriverVersion()
        return version.decode() if isinstance(version, bytes) else str(version)
    except Exception:
        return _driver_by_smi()


def _driver_by_smi() -> str:
    import subprocess

    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.splitlines()[0].strip()
