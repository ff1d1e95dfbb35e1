"""Measured sets by name: which are at hand, their cases, and what of them was left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from types import ModuleType

from dynosim.accuracy.case import Case
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.registry import find_module, module_names

SETS = "dynosim.accuracy.sets"


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredSet:
    """The cases of one set; ``dropped`` maps a reason to the number of rows left out for it."""

    name: str
    cases: tuple[Case, ...]
    dropped: dict[str, int]

    def sample(self, size: int | None) -> MeasuredSet:
        """Returns at most ``size`` of its cases: the same ones every time, spread by chance.

        A case is chosen by a hash of where it stands, so that neither the order of the file nor
        the cost of a case decides.
        """
        if size is None or size >= len(self.cases):
            return self
        chosen = sorted(self.cases, key=lambda case: rank(case.row))[:size]
        kept = set(map(id, chosen))
        return replace(self, cases=tuple(c for c in self.cases if id(c) in kept))


def rank(row: str) -> bytes:
    """Returns what cases are put in order of chance by, from where a case stands."""
    return blake2b(row.encode(), digest_size=8).digest()


def load_sets(data: Path | None, names: Sequence[str] = ()) -> list[MeasuredSet]:
    """Returns the named sets, or all that are at hand, in the order of their names.

    ``data`` is the folder that sets' sources are looked for in; None: only the sets that a
    published package brings. Raises UserError for a name that no set has, for a named set whose
    sources are missing, and where nothing is at hand.
    """
    if data is not None and not data.is_dir():
        raise UserError(f"there is no folder {data}", where="--data")
    found = []
    for name in names or module_names(SETS):
        module = find_module(SETS, "set", name)
        folder = _folder(module, data, required=bool(names))
        if folder is not None:
            cases, dropped = tuple(module.read(folder)), dict(module.dropped(folder))
            short = module.__name__.rpartition(".")[2]
            found.append(MeasuredSet(name=short, cases=cases, dropped=dropped))
    if not found:
        known = ", ".join(module_names(SETS))
        raise UserError(f"no measured set in {data}", where="--data", hint=f"known sets: {known}")
    return found


def _folder(module: ModuleType, data: Path | None, *, required: bool) -> Path | None:
    """Returns the folder with all sources of a set, None where it is not at hand."""
    if data is not None and all((data / source).is_file() for source in module.SOURCES):
        return data
    public = getattr(module, "public_folder", None)
    if public is not None and (data is None or required):
        folder: Path = public()
        return folder
    if not required:
        return None
    name = module.__name__.rpartition(".")[2]
    missing = ", ".join(map(str, module.SOURCES))
    raise UserError(
        f"the set {name!r} needs {missing}" + ("" if data is None else f" in {data}"),
        where="--set",
        hint="give the folder that has it with --data DIR",
    )
