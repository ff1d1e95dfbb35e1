"""A card of a device that the catalogue does not know, from what was measured on it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynosim.hardware_models.measure.case import Case, Timing
from dynosim.hardware_models.measure.ledger import Ledger

HEAD = """\
# {device}: written by `dynosim calibrate measure`, every rate the best that was measured.
# Edit it where you know better; use it with --gpu {path}.
# Links and power were not measured: memory's rate stands in for links, 0 W says unknown.
"""


def write_card(ledger: Ledger, path: Path) -> bool:
    """Writes the card unless someone has one there already; returns whether it is there.

    Without a matrix product and a large copy there is nothing to write.
    """
    if path.exists():
        return True
    rates, bandwidth = peak_flop_s(ledger), memory_bytes_s(ledger)
    if not rates or bandwidth is None:
        return False
    card = _card(ledger.origin, rates, bandwidth)
    lines = [f"{name}: {json.dumps(value)}" for name, value in card.items()]
    head = HEAD.format(device=ledger.origin["device"], path=path)
    path.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    return True


def _card(origin: Mapping[str, Any], rates: dict[str, float], bandwidth: float) -> dict[str, Any]:
    wide = rates.get("bfloat16") or rates.get("float16") or max(rates.values())
    device = str(origin["device"])
    return {
        "key": re.sub(r"[^a-z0-9]+", "_", device.lower()).strip("_"),
        "name": device,
        "compute_capability": float(origin.get("compute_capability", 0)),
        "memory_bytes": int(origin.get("memory_bytes") or _host_memory_bytes()),
        "hbm_bandwidth_bytes_s": _rounded(bandwidth),
        # Unquantised models are priced as 16-bit ones, whatever they were measured in.
        "peak_flop_s": {n: _rounded(r) for n, r in ({"bfloat16": wide} | rates).items()},
        "nvlink_bandwidth_bytes_s": None,
        "pcie_bandwidth_bytes_s": _rounded(bandwidth),
        "internode_bandwidth_bytes_s": _rounded(bandwidth),
        "gpus_per_node": int(origin.get("num_gpus", 1)),
        "tdp_w": 0.0,
        "kernel_tables": ".",
    }


def _rounded(rate: float) -> float:
    return float(f"{rate:.4g}")


def _host_memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def peak_flop_s(ledger: Ledger) -> dict[str, float]:
    """Returns the best rate of a matrix product by dtype, in FLOP/s."""
    best: dict[str, float] = {}
    for case, timing in ledger.timings("gemm").items():
        key = case.key
        rate = 2.0 * key["m"] * key["n"] * key["k"] / timing.median_s
        best[key["gemm_dtype"]] = max(best.get(key["gemm_dtype"], 0.0), rate)
    return best


def memory_bytes_s(ledger: Ledger) -> float | None:
    """Returns the best rate of reads, writes or copies of the largest size, in bytes/s."""
    moves = {c: t for c, t in ledger.timings("copy").items() if "host" not in c.key["op"]}
    largest = max((case.key["bytes"] for case in moves), default=0)
    rates = [_rate(c, t) for c, t in moves.items() if c.key["bytes"] == largest]
    return max(rates, default=None)


def _rate(case: Case, timing: Timing) -> float:
    both_ways = 2 if case.key["op"] == "copy" else 1
    return float(both_ways * case.key["bytes"] / timing.median_s)
