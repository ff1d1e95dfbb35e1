"""Finds the upstream tables: an installed package, an unpacked folder, or a wheel file."""

from __future__ import annotations

import importlib.util
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dynosim.hardware_models.build_data.system import Wheel
from dynosim.hardware_models.errors import UserError

PACKAGE = "aiconfigurator-core"
VERSION = "0.12.0"
LICENCE = "Apache-2.0"
_MODULE = "aiconfigurator_core"


@dataclass(frozen=True)
class Upstream:
    """The tables and the release that they were published in."""

    wheel: Wheel
    version: str


@contextmanager
def open_upstream(where: str) -> Iterator[Upstream]:
    """Yields the tables at ``where``: ``installed``, a folder, or a ``.whl`` file.

    A wheel file is unpacked into a temporary folder for as long as the context lasts.
    Raises :class:`UserError` where there are none, or where they are of another release than the
    one that the rules were written against.
    """
    path = _installed() if where == "installed" else Path(where)
    if path.is_file() and zipfile.is_zipfile(path):
        with tempfile.TemporaryDirectory() as folder:
            _unpack(path, Path(folder))
            yield _upstream(Path(folder), where)
    else:
        yield _upstream(path, where)


def _installed() -> Path:
    found = importlib.util.find_spec(_MODULE)
    if found is None or found.origin is None:
        hint = f"pip install {PACKAGE}=={VERSION}, or pass a folder or a wheel file"
        raise UserError(f"{PACKAGE} is not installed", where="--wheel", hint=hint)
    return Path(found.origin).parent.parent


def _unpack(path: Path, folder: Path) -> None:
    wanted = (f"{_MODULE}/systems/", f"{_MODULE}-")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder, [n for n in archive.namelist() if n.startswith(wanted)])


def _upstream(root: Path, where: str) -> Upstream:
    systems = root / _MODULE / "systems"
    if not (systems / "query_versions.yaml").is_file():
        hint = f"expected {_MODULE}/systems/query_versions.yaml in it"
        raise UserError(f"no kernel tables at {where!r}", where="--wheel", hint=hint)
    version = _release(root)
    if version != VERSION:
        hint = f"the rules and keys were written for {PACKAGE}=={VERSION}"
        raise UserError(f"{where!r} holds release {version}", where="--wheel", hint=hint)
    return Upstream(Wheel(systems), version)


def _release(root: Path) -> str:
    for metadata in sorted(root.glob(f"{_MODULE}-*.dist-info/METADATA")):
        for line in metadata.read_text(encoding="utf-8").splitlines():
            if line.startswith("Version: "):
                return line.removeprefix("Version: ").strip()
    return "unknown"
