"""Clocks, temperature and power of an NVIDIA GPU: by nvidia-ml-py, or by nvidia-smi."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

State = Mapping[str, Any]
Reader = Callable[[], State | None]

SMI_FIELDS = {
    "sm_clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "temperature_c": "temperature.gpu",
    "power_w": "power.draw",
    "power_limit_w": "power.limit",
}


def state_reader(uuid: str | None) -> Reader:
    """Returns what reads the state of the GPU with that UUID; it answers None without either."""
    if uuid is None:
        return lambda: None
    return _nvml_reader(uuid) or _smi_reader(uuid) or (lambda: None)


def _nvml_reader(uuid: str) -> Reader | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except Exception:
        # Not installed, no driver, or a GPU it does not list: nvidia-smi may still know.
        return None

    def read() -> State:
        clock = pynvml.nvmlDeviceGetClockInfo
        return {
            "at": time.time(),
            "sm_clock_mhz": clock(handle, pynvml.NVML_CLOCK_SM),
            "memory_clock_mhz": clock(handle, pynvml.NVML_CLOCK_MEM),
            "temperature_c": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "power_w": pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            "power_limit_w": pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
            "throttle_reasons": _throttle_reasons(pynvml, handle),
        }

    return _quietly(read)


def _throttle_reasons(pynvml: Any, handle: Any) -> int | None:
    """Returns NVML's bits of why clocks are low; the call was renamed in driver 535."""
    for name in ("ClocksEventReasons", "ClocksThrottleReasons"):
        ask = getattr(pynvml, f"nvmlDeviceGetCurrent{name}", None)
        if ask is not None:
            return int(ask(handle))
    return None


def _smi_reader(uuid: str) -> Reader | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = f"--query-gpu={','.join(SMI_FIELDS.values())}"
    command = [program, f"--id={uuid}", query, "--format=csv,noheader,nounits"]

    def read() -> State:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return {"at": time.time(), **parsed_smi(found.stdout)}

    return _quietly(read)


def parsed_smi(text: str) -> dict[str, float]:
    """Returns the figures of one line of nvidia-smi's CSV; those it does not know are left out."""
    cells = [cell.strip() for cell in text.strip().split(",")]
    found = {}
    for name, cell in zip(SMI_FIELDS, cells, strict=True):
        try:
            found[name] = float(cell)
        except ValueError:
            continue
    return found


def _quietly(read: Callable[[], State]) -> Reader:
    """Returns a reader that answers None where the driver does: a log must not end a run."""

    def reader() -> State | None:
        try:
            return read()
        except Exception:
            return None

    return reader
