"""Writes one GPU's tables and the manifest that says where each came from."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynosim.hardware_models.build_data import source
from dynosim.hardware_models.build_data.assemble import Candidate, Rejection, assemble
from dynosim.hardware_models.build_data.families import FAMILIES, Family
from dynosim.hardware_models.build_data.pack import Labels, pack
from dynosim.hardware_models.build_data.rows import Group
from dynosim.hardware_models.build_data.system import BACKENDS, System, Wheel
from dynosim.hardware_models.timing.tables import decode


@dataclass(frozen=True)
class Table:
    """One file to write, and its entry in the manifest."""

    name: str
    packed: bytes
    entry: dict[str, Any]


def write_gpu(upstream: source.Upstream, gpu: str, out: Path) -> dict[str, Any]:
    """Writes the tables of one GPU under ``out``/<gpu> and returns the manifest.

    Files of an earlier build that this one does not write are removed.
    """
    system = upstream.wheel.system(gpu)
    tables, rejected = [], []
    for family in FAMILIES:
        assembly = assemble(upstream.wheel, system, family)
        rejected.extend(assembly.rejected)
        for backend, groups in sorted(assembly.shipped.items()):
            tables.append(_table(upstream.wheel, system, family, backend, groups))
    manifest = {
        "gpu": gpu,
        "device": system.device,
        "upstream": {
            "package": source.PACKAGE,
            "version": upstream.version,
            "licence": source.LICENCE,
            "url": f"https://pypi.org/project/{source.PACKAGE}/{upstream.version}/",
        },
        "tables": [table.entry for table in tables],
        "rejected": _rejections(rejected),
    }
    _write(out / gpu, tables, manifest)
    return manifest


def _table(
    wheel: Wheel, system: System, family: Family, backend: str, groups: dict[Group, Candidate]
) -> Table:
    version = (
        wheel.current_version(system.gpu, backend)
        if backend in BACKENDS
        else next(iter(groups.values())).origin.version
    )
    parts = [(groups[group].rows, groups[group].origin) for group in sorted(groups, key=str)]
    packed = pack(Labels(system.gpu, family.name, backend, version), parts)
    read = decode(packed)
    name = f"{backend}.{family.name}.xz"
    entry = {
        "gpu": system.gpu,
        "backend": backend,
        "version": read.version,
        "family": family.name,
        "rows": len(read),
        "source": read.source,
        "device": read.device,
        "file": name,
        "bytes": len(packed),
        "sha256": hashlib.sha256(packed).hexdigest(),
        "keys": {key: _extent(axis) for key, axis in zip(read.keys, read.axes, strict=True)},
        "origins": _origins(groups),
    }
    return Table(name, packed, entry)


def _extent(axis: Any) -> Any:
    """Returns the texts of an axis, or its first, last and number of values."""
    if isinstance(axis, tuple):
        return list(axis)
    return {"from": int(axis[0]), "to": int(axis[-1]), "values": len(axis)}


def _origins(groups: dict[Group, Candidate]) -> list[dict[str, Any]]:
    """Returns where the rows come from, with the groups that are not from the newest file."""
    rows: Counter[Any] = Counter()
    names: dict[Any, list[Group]] = {}
    for group in sorted(groups, key=str):
        origin = groups[group].origin
        rows[origin] += len(groups[group].rows)
        names.setdefault(origin, []).append(group)
    entries = []
    for origin, held in sorted(names.items(), key=lambda item: -rows[item[0]]):
        entry: dict[str, Any] = {
            "source": origin.source,
            "backend": origin.backend,
            "version": origin.version,
            "upstream": origin.upstream,
            "rows": rows[origin],
        }
        if origin.rejected is not None:
            entry |= {"groups": [list(g) for g in held], "in_place_of": origin.rejected}
        entries.append(entry)
    return entries


def _rejections(rejected: Sequence[Rejection]) -> list[dict[str, Any]]:
    return [
        {
            "family": r.family,
            "backend": r.backend,
            "version": r.version,
            "group": list(r.group),
            "rows": r.rows,
            "reason": r.reason,
            "replaced_by": r.replaced_by,
        }
        for r in rejected
    ]


def _write(folder: Path, tables: Sequence[Table], manifest: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stale in {path.name for path in folder.glob("*.xz")} - {table.name for table in tables}:
        (folder / stale).unlink()
    for table in tables:
        (folder / table.name).write_bytes(table.packed)
    text = json.dumps(manifest, indent=1, sort_keys=False) + "\n"
    (folder / "manifest.json").write_text(text, encoding="utf-8")
