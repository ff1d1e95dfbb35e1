"""The ``workload:`` section of a space: the same keys as the commands' workload flags."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.search.field_type import check, field_types, nearest, shown
from dynosim.search.source import Source
from dynosim.sim.workload.spec import ALIASES, WorkloadSpec, check_spec

FILE_FIELDS = ("trace", "lengths_from")


def parse_workload(value: object, source: Source) -> WorkloadSpec:
    """Returns the workload's description; InputErrors lists every problem.

    Paths are relative to the space's own file.
    """
    if not isinstance(value, dict):
        raise source.error(
            ("workload",), f"found {shown(value)}", "allowed: a mapping, such as {trace: FILE}"
        )
    hints = field_types(WorkloadSpec)
    given: dict[str, Any] = {}
    errors: list[UserError] = []
    for key, item in value.items():
        name = key.replace("-", "_").lower()
        name = ALIASES.get(name, name)
        if name not in hints:
            close = nearest(key, (*hints, *ALIASES))
            head = f"nearest: {', '.join(close)}; " if close else ""
            allowed = f"{head}allowed: {', '.join(hints)}"
            errors.append(source.error(("workload", key), "unknown key", allowed))
            continue
        problem = check(hints[name], item, ("workload", key), source)
        if problem is None and name in FILE_FIELDS and item is not None:
            item = os.path.normpath((source.folder or Path()) / item)
            problem = _file_problem(item, ("workload", key), source)
        if problem is not None:
            errors.append(problem)
        given[name] = item
    if errors:
        raise InputErrors(errors)
    spec = WorkloadSpec(**given)
    try:
        check_spec(spec)
    except UserError as error:
        found = error.errors if isinstance(error, InputErrors) else [error]
        raise InputErrors(
            [source.error(("workload", e.where), e.message, e.hint) for e in found]
        ) from None
    return spec


def _file_problem(name: str, path: tuple[str, ...], source: Source) -> UserError | None:
    file = Path(name)
    if file.is_file():
        return None
    if not file.parent.is_dir():
        return source.error(path, f"no such folder: {file.parent}")
    names = sorted(p.name for p in file.parent.iterdir() if p.is_file())
    close = nearest(file.name, names)
    hint = f"nearest: {', '.join(close)}" if close else f"{file.parent} has: {', '.join(names[:8])}"
    return source.error(path, f"no such file: {file}", hint)
