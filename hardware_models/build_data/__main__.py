"""Command line of the table build."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from dynosim.hardware_models.build_data.manifest import write_gpu
from dynosim.hardware_models.build_data.source import PACKAGE, VERSION, open_upstream
from dynosim.hardware_models.build_data.system import GPUS
from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.hardware_models.timing.tables import TABLES_DIR

_DESCRIPTION = f"""\
Rebuild the measured kernel tables in hardware_models/data/tables from {PACKAGE}=={VERSION}
(Apache-2.0, on PyPI). Needs the extra: pip install 'dynosim[build-data]'.

For every GPU and backend it takes each op family at the backend's current version of that
release, fills groups of rows (a dtype, an attention shape, an expert shape) that the current
version lacks from the newest older one, rejects faulty rows and groups by the rules in
hardware_models/build_data/quality.py, and puts the nearest other backend's rows in place of a
rejected group, marked "transferred". The same input gives the same bytes. What was taken from
where, and what was rejected and why, stands in each GPU's manifest.json.
"""


def main(arguments: list[str] | None = None) -> int:
    """Builds and prints one line per GPU; returns 2 on a mistake in the arguments."""
    options = _parser().parse_args(arguments)
    try:
        _build(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _build(options: Any) -> None:
    for gpu in options.gpu:
        if gpu not in GPUS:
            raise unknown_name("gpu", gpu, GPUS, where="--gpu")
    with open_upstream(options.wheel) as upstream:
        for gpu in options.gpu or GPUS:
            print(_summary(write_gpu(upstream, gpu, options.out)), flush=True)


def _summary(manifest: dict[str, Any]) -> str:
    tables = manifest["tables"]
    groups = [r for r in manifest["rejected"] if r["replaced_by"]]
    replaced = ", ".join(
        f"{r['backend']} {r['family']} {'/'.join(map(str, r['group']))} <- {r['replaced_by']}"
        for r in groups
    )
    rows, size = sum(t["rows"] for t in tables), sum(t["bytes"] for t in tables)
    line = f"{manifest['gpu']:20} {len(tables):3} tables {rows:9,} rows {size / 1e6:5.2f} MB"
    return f"{line}  replaced: {replaced}" if replaced else line


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dynosim.hardware_models.build_data",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--wheel",
        required=True,
        metavar="installed|FOLDER|FILE.whl",
        help="where the upstream package is: installed here, unpacked in a folder, or a wheel",
    )
    parser.add_argument(
        "--gpu", action="append", default=[], help="build this GPU only (repeat for more)"
    )
    parser.add_argument(
        "--out", type=Path, default=TABLES_DIR, help="folder to write to (default: the package's)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
