"""Measures, in the shipped tables, what GEMMs lose that unpack their weights to 16 bits.

    python -m dynosim.hardware_models.calibration.unpacking [--write]

``--write`` stores the result in ``data/unpacking.yaml``, which :mod:`..timing.unpacking` reads.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.cards import DATA
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.timing import roofline
from dynosim.hardware_models.timing.tables import OpTable, load_table
from dynosim.hardware_models.timing.weight_format import weight_format

DONOR = ("a100_sxm", "trtllm")
"""The only shipped tables with weight-only and bfloat16 GEMMs of one backend, but for SGLang's int8
on H100, whose kernel gains little at any size."""

LARGE_ELEMENTS = 2**26
"""Weight matrices below this are bound by launches at few tokens."""

TOKENS = (1, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192)

SAME_KERNEL = ("sglang", "int4_wo")
"""A backend that runs one unpacking MoE kernel (Marlin) on Ampere and on Hopper."""
MANY_TOKENS_PER_EXPERT = 64.0


def penalties(dtype: str) -> FloatArray:
    """Returns how much further above its roofline the format is than bfloat16, per TOKENS.

    Medians over large weight matrices, at least 1: unpacking does not make arithmetic cheaper.
    """
    gpu = get_gpu(DONOR[0])
    table = load_table(*DONOR, "gemm")
    packed, plain = (_by_shape(table.select(gemm_dtype=d), "m") for d in (dtype, "bfloat16"))
    tokens = np.array(TOKENS, dtype=np.float64)
    found = []
    for shape in packed.keys() & plain.keys():
        n, k = shape
        if n * k >= LARGE_ELEMENTS:
            roofs = [
                roofline.gemm_s(gpu, tokens, n, k, weight_format(d)) for d in (dtype, "bfloat16")
            ]
            times = [np.interp(tokens, *of[shape]) for of in (packed, plain)]
            found.append(times[0] / times[1] * roofs[1] / roofs[0])
    return np.maximum(1.0, np.median(found, axis=0))


def hopper_losses() -> Iterator[tuple[str, float]]:
    """Yields GPU -> time of the same unpacking kernel over bfloat16, relative to the A100's.

    Where arithmetic binds: the kernel issues Ampere's tensor instructions on both, bfloat16
    kernels Hopper's faster ones.
    """
    reference = _expert_ratios("a100_sxm")
    for gpu in ("h100_sxm", "h200_sxm"):
        ratios = _expert_ratios(gpu)
        shared = [ratios[key] / reference[key] for key in ratios.keys() & reference.keys()]
        yield gpu, float(np.median(shared))


def _expert_ratios(gpu: str) -> dict[tuple[Any, ...], float]:
    """Returns shape -> int4 over bfloat16 seconds, of shapes with many tokens per expert."""
    backend, dtype = SAME_KERNEL
    table = load_table(gpu, backend, "moe")
    packed, plain = (_rows(table.select(moe_dtype=d)) for d in (dtype, "bfloat16"))
    keys = table.select(moe_dtype=dtype).keys
    at = {key: keys.index(key) for key in ("num_tokens", "topk", "num_experts")}
    return {
        shape: packed[shape] / plain[shape]
        for shape in packed.keys() & plain.keys()
        if shape[at["num_tokens"]] * shape[at["topk"]]
        >= MANY_TOKENS_PER_EXPERT * shape[at["num_experts"]]
    }


def _rows(table: OpTable) -> dict[tuple[Any, ...], float]:
    columns = [table.column(key).tolist() for key in table.keys]
    return dict(zip(zip(*columns, strict=True), table.latency_s.tolist(), strict=True))


def _by_shape(table: OpTable, along: str) -> dict[tuple[int, int], tuple[FloatArray, FloatArray]]:
    """Returns (n, k) -> values of ``along`` and seconds."""
    n, k, m = (table.column(key) for key in ("n", "k", along))
    starts = np.flatnonzero((np.diff(n) != 0) | (np.diff(k) != 0)) + 1
    first = np.concatenate(([0], starts))
    lines = zip(np.split(m.astype(float), starts), np.split(table.latency_s, starts), strict=True)
    return dict(zip(zip(n[first].tolist(), k[first].tolist(), strict=True), lines, strict=True))


def text(today: str) -> str:
    """Returns the data file."""
    gpu = get_gpu(DONOR[0])
    ridge = gpu.peak("bfloat16") / gpu.hbm_bandwidth_bytes_s
    losses = dict(hopper_losses())
    lines = [
        "# What GEMMs lose that unpack their weights to 16 bits (AWQ, GPTQ, int8 weight-only).",
        "# Written by python -m dynosim.hardware_models.calibration.unpacking --write",
        "source:",
        f'  penalties: "{DONOR[1]} on {DONOR[0]}, matrices of {LARGE_ELEMENTS} weights and more: '
        'medians of seconds over those of bfloat16, divided by the ratio of rooflines"',
        '  asynchronous_loss: "SGLang Marlin MoE over bfloat16, relative to A100, '
        f"{MANY_TOKENS_PER_EXPERT:g} tokens an expert and more: "
        + ", ".join(f"{name} {value:.2f}" for name, value in losses.items())
        + '; their geometric mean, taken for Blackwell data-centre GPUs too"',
        '  tables: "aiconfigurator-core 0.12.0 (Apache-2.0)"',
        f"  computed: {today}",
        "# Tokens over the tokens at which reading bfloat16 weights takes as long as multiplying.",
        f"tokens_over_ridge: {_list(np.array(TOKENS) / ridge)}",
        f"int4_wo: {_list(penalties('int4_wo'))}",
        f"int8_wo: {_list(penalties('int8_wo'))}",
        f"asynchronous_loss: {float(np.prod(list(losses.values()))) ** (1 / len(losses)):.3f}",
    ]
    return "\n".join(lines) + "\n"


def _list(values: FloatArray) -> str:
    return "[" + ", ".join(f"{value:.4g}" for value in values.tolist()) + "]"


def main(arguments: list[str]) -> None:
    """Prints the data file; with ``--write`` stores it."""
    content = text(datetime.now(UTC).date().isoformat())
    print(content)
    if "--write" in arguments:
        (DATA / "unpacking.yaml").write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
