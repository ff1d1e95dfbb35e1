"""Writes what was measured as a folder of kernel tables, for ``--kernel-tables`` and for people."""

from __future__ import annotations

import csv
import datetime
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.measure.card import write_card
from dynosim.hardware_models.measure.case import Timing
from dynosim.hardware_models.measure.families import FOR_PEOPLE, KEYS
from dynosim.hardware_models.measure.ledger import Ledger
from dynosim.hardware_models.measure.timing import DRIFT, median, quantile
from dynosim.hardware_models.timing.own_tables import HEADER, LATENCY

BACKEND = "torch"
"""What the tables call the library that ran the ops, unless it was an engine's own."""

LEDGER, MANIFEST, CARD, PEOPLE = "ledger.jsonl", "manifest.json", "card.yaml", "other"
STATISTICS = ("p10_us", "p90_us", "samples", "kernel")


def write_tables(ledger: Ledger, folder: Path, unreached: int = 0) -> list[Path]:
    """Writes every family that has rows, the header and the manifest; returns the files.

    Families that no simulation reads go to ``other/``, with their statistics. A device that the
    catalogue does not know gets a card, for ``--gpu FOLDER/card.yaml``.
    """
    written = []
    for family in KEYS:
        timings = ledger.timings(family)
        if not timings:
            continue
        people = family in FOR_PEOPLE
        path = folder / PEOPLE / f"{family}.csv" if people else folder / f"{family}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = sorted((case.values, timing) for case, timing in timings.items())
        _write_csv(path, KEYS[family], rows, statistics=people)
        written.append(path)
    gpu = known_gpu(ledger.origin)
    if gpu is None and write_card(ledger, folder / CARD):
        written.append(folder / CARD)
    header = _write_header(ledger, folder, gpu or CARD)
    return [*written, header, _write_manifest(ledger, folder, unreached)]


def known_gpu(origin: Mapping[str, Any]) -> str | None:
    """Returns the catalogue's key of the device that was measured, None where it has none."""
    try:
        return get_gpu(str(origin["device"])).key
    except UserError:
        return None


def _write_csv(
    path: Path,
    keys: Sequence[str],
    rows: Iterable[tuple[tuple[Any, ...], Timing]],
    statistics: bool,
) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow([*keys, LATENCY, *(STATISTICS if statistics else ())])
        for values, t in rows:
            more = [_us(t.p10_s), _us(t.p90_s), t.samples, t.kernel] if statistics else []
            out.writerow([*values, _us(t.median_s), *more])


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.6g}"


def _write_header(ledger: Ledger, folder: Path, gpu: str) -> Path:
    origin, path = ledger.origin, folder / HEADER
    libraries = ", ".join(
        f"{name} {origin[name]}" for name in ("torch", "cuda", "driver") if name in origin
    )
    today = datetime.date.fromtimestamp(ledger.path.stat().st_mtime).isoformat()
    fields = {
        "gpu": gpu,
        "backend": str(origin.get("engine", BACKEND)),
        "version": str(origin.get("engine_version", origin["torch"])),
        "device": str(origin["device"]),
        "source": f"dynosim calibrate measure, {libraries}, launched {origin['launch']}, {today}",
    }
    lines = [f"{name}: {json.dumps(value)}" for name, value in fields.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _write_manifest(ledger: Ledger, folder: Path, unreached: int) -> Path:
    path = folder / MANIFEST
    text = json.dumps(manifest(ledger, unreached), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def manifest(ledger: Ledger, unreached: int) -> dict[str, Any]:
    """Returns what was measured how well: rows, spreads, what is missing and why, clocks met."""
    return {
        "origin": ledger.origin,
        "families": {f: _quality(list(t.values())) for f in KEYS if (t := ledger.timings(f))},
        "skipped": [
            {"family": family, "reason": reason, "shapes": count}
            for (family, reason), count in Counter(
                (case.family, reason) for case, reason in ledger.skips().items()
            ).items()
        ],
        "unreached": unreached,
        "probe": _probe(ledger.probes),
        "device_state": states_of(ledger.states),
    }


def _quality(timings: Sequence[Timing]) -> dict[str, Any]:
    spreads = [t.spread for t in timings]
    return {
        "rows": len(timings),
        "spread_median": round(median(spreads), 4),
        "spread_p90": round(quantile(spreads, 0.9), 4),
        "drifted": sum(abs(t.drift) > DRIFT for t in timings),
        "kernels": dict(Counter(t.kernel for t in timings)),
    }


def _probe(probes: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Returns how far one shape's time moved over the run: a clock that throttled shows here."""
    seconds = [p["median_s"] for p in probes]
    if not seconds:
        return {"times": 0}
    return {"times": len(seconds), "slowest_over_fastest": round(max(seconds) / min(seconds), 4)}


def states_of(states: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Returns least, median and most of each figure over a run's states."""
    units = ("_mhz", "_c", "_w")
    names = dict.fromkeys(name for state in states for name in state if name.endswith(units))
    columns = {name: [float(s[name]) for s in states if name in s] for name in names}
    return {n: {"least": min(c), "median": median(c), "most": max(c)} for n, c in columns.items()}
