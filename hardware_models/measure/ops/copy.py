"""Bandwidth: of the device's memory, and between it and the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dynosim.hardware_models.measure.case import Unsupported
from dynosim.hardware_models.measure.lab import Call, Calls, Lab

Maker = Callable[[Lab, int], Call]


def _numbers(lab: Lab, size: int, **where: Any) -> Any:
    return lab.torch.ones(size // 4, dtype=lab.torch.float32, **(where or {"device": lab.device}))


def _read(lab: Lab, size: int) -> Call:
    numbers = _numbers(lab, size)
    return lambda: numbers.sum()


def _write(lab: Lab, size: int) -> Call:
    numbers = _numbers(lab, size)
    return lambda: numbers.fill_(1.0)


def _copy(lab: Lab, size: int) -> Call:
    """Reads ``size`` bytes and writes as many."""
    source, target = _numbers(lab, size), _numbers(lab, size)
    return lambda: target.copy_(source)


def _host_to_device(lab: Lab, size: int) -> Call:
    source, target = _numbers(lab, size, pin_memory=True), _numbers(lab, size)
    return lambda: target.copy_(source, non_blocking=True)


def _device_to_host(lab: Lab, size: int) -> Call:
    source, target = _numbers(lab, size), _numbers(lab, size, pin_memory=True)
    return lambda: target.copy_(source, non_blocking=True)


OPS: dict[str, Maker] = {
    "read": _read,
    "write": _write,
    "copy": _copy,
    "host_to_device": _host_to_device,
    "device_to_host": _device_to_host,
}


def build(lab: Lab, key: Mapping[str, Any]) -> list[Calls]:
    """Returns calls that move ``bytes`` one way; ``copy`` reads and writes that many."""
    op, size = key["op"], key["bytes"]
    if op not in OPS:
        raise Unsupported(f"no copy {op!r}, only {', '.join(OPS)}")
    if not lab.on_gpu and "host" in op:
        raise Unsupported("a CPU has no link to a host")
    copies = lab.copies(2 * size)
    return [Calls(op, [OPS[op](lab, size) for _ in range(copies)])]
