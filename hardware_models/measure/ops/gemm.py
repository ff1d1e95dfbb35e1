"""Matrix products as linear layers launch them: (m x k) activations times (n x k) weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynosim.hardware_models.measure.case import Unsupported
from dynosim.hardware_models.measure.lab import Call, Calls, Lab

FP8_CAPABILITY = (8, 9)
"""Compute capability from which tensor cores multiply 8-bit floats."""


def build(lab: Lab, key: Mapping[str, Any]) -> list[Calls]:
    """Returns calls on weights that are cold and activations that are warm, as in a layer."""
    dtype, n, k, m = (key[name] for name in ("gemm_dtype", "n", "k", "m"))
    if dtype == "fp8":
        return [_fp8(lab, n, k, m)]
    if lab.engine:
        return [lab.engine.linear(lab, dtype, n, k, m)]
    copies = lab.copies(lab.bytes_of(dtype, n, k), lab.bytes_of(dtype, m, n + k))
    activations = lab.normal(dtype, m, k)
    return [Calls("linear", [_linear(lab, activations, dtype, n, k) for _ in range(copies)])]


def _linear(lab: Lab, activations: Any, dtype: str, n: int, k: int) -> Call:
    weights = lab.normal(dtype, n, k)
    return lambda: lab.torch.nn.functional.linear(activations, weights)


def _fp8(lab: Lab, n: int, k: int, m: int) -> Calls:
    if not lab.on_gpu:
        raise Unsupported("8-bit floats are not measured on a CPU")
    found = (lab.properties.major, lab.properties.minor)
    if found < FP8_CAPABILITY:
        raise Unsupported(f"no 8-bit tensor cores at compute capability {found[0]}.{found[1]}")
    if n % 16 or k % 16:
        raise Unsupported("torch._scaled_mm needs n and k divisible by 16")
    copies = lab.copies(lab.bytes_of("fp8", n, k), lab.bytes_of("bfloat16", m, n + k))
    activations = lab.normal("fp8", m, k)
    one = lab.torch.ones((), dtype=lab.torch.float32, device=lab.device)
    return Calls("scaled_mm", [_scaled(lab, activations, one, n, k) for _ in range(copies)])


def _scaled(lab: Lab, activations: Any, one: Any, n: int, k: int) -> Call:
    weights, torch = lab.normal("fp8", n, k).t(), lab.torch
    return lambda: torch._scaled_mm(
        activations, weights, one, one, out_dtype=torch.bfloat16, use_fast_accum=True
    )
