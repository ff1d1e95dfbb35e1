"""Things found by name: every module of a folder is one, and outside packages can add more."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

from dynosim.hardware_models.errors import unknown_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def _entries(package: str) -> list[EntryPoint]:
    # Reading the metadata of all installed packages takes longer than a small simulation.
    from importlib.metadata import entry_points

    return list(entry_points(group=package))


@lru_cache(maxsize=32)
def own_names(package: str) -> frozenset[str]:
    """Returns the names of the package's own public modules."""
    folder = importlib.import_module(package)
    public = {m.name for m in pkgutil.iter_modules(folder.__path__) if not m.name.startswith("_")}
    return frozenset(public - {"base"})


def module_names(package: str) -> list[str]:
    """Returns the names registered in ``package``: its public modules, and entry points.

    The entry-point group has the package's dotted name; each entry point is a module.
    """
    return sorted(own_names(package) | {e.name for e in _entries(package)})


def find_module(package: str, kind: str, name: str) -> ModuleType:
    """Returns the module registered under ``name``; raises UserError with the nearest names."""
    name = name.replace("-", "_")
    try:
        if name.isidentifier() and name != "base" and not name.startswith("_"):
            return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.{name}":
            raise
    for entry in _entries(package):
        if entry.name == name:
            module = entry.load()
            assert isinstance(module, ModuleType)
            return module
    raise unknown_name(kind, name, module_names(package))
