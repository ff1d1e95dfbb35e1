"""Norm and activation as PyTorch runs them, for people to hold against an engine's fused ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dynosim.hardware_models.measure.case import Unsupported
from dynosim.hardware_models.measure.lab import Calls, Lab


def _rms_norm(lab: Lab, x: Any, y: Any) -> Any:
    return lab.torch.nn.functional.rms_norm(x, (x.shape[-1],), y[0])


def _silu_and_mul(lab: Lab, x: Any, y: Any) -> Any:
    return lab.torch.nn.functional.silu(x).mul_(y)


OPS: dict[str, Callable[[Lab, Any, Any], Any]] = {
    "rms_norm": _rms_norm,
    "silu_and_mul": _silu_and_mul,
}


def build(lab: Lab, key: Mapping[str, Any]) -> list[Calls]:
    """Returns calls on (``num_tokens`` x ``width``), warm: the kernel before has just made it."""
    if key["op"] not in OPS:
        raise Unsupported(f"no op {key['op']!r}, only {', '.join(OPS)}")
    op, tokens, width = OPS[key["op"]], key["num_tokens"], key["width"]
    lab.copies(4 * lab.bytes_of(key["fused_dtype"], tokens, width))
    x, y = (lab.normal(key["fused_dtype"], tokens, width) for _ in range(2))
    return [Calls(key["op"], [lambda: op(lab, x, y)])]
