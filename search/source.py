"""Where a value of the space was written: file, line and key path, for messages that teach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dynosim.hardware_models.errors import InputErrors, UserError

KeyPath = tuple[str | int, ...]

MAX_FILE_BYTES = 1 << 20
MAX_NODES = 50_000


@dataclass(frozen=True)
class Source:
    """Returns locations: ``name`` heads every message, ``lines`` maps key paths to YAML lines.

    ``origins`` are the files that keys were included from, by the beginnings of their paths.
    """

    name: str = "space"
    folder: Path | None = None
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    origins: Mapping[KeyPath, Source] = field(default_factory=dict, kw_only=True)

    def where(self, path: KeyPath) -> str:
        """Returns ``file:line: key.path``, with the line of the nearest marked ancestor."""
        for prefix in (path[:2], path[:1]):
            origin = self.origins.get(prefix)
            if origin is not None and origin.name != self.name:
                return origin.where(path)
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        line = self.lines.get(known)
        head = self.name if line is None else f"{self.name}:{line}"
        return f"{head}: {spell(path)}" if path else head

    def line(self, where: str) -> int:
        """Returns the line in a location made here; 0 where it has none."""
        number = where.removeprefix(f"{self.name}:").partition(":")[0]
        return int(number) if number.isdigit() else 0

    def renamed(self, key: str, name: str) -> Source:
        """Returns the same places with the top-level ``key`` known as ``name`` too."""
        moved = {(name, *p[1:]): line for p, line in self.lines.items() if p and p[0] == key}
        from_files = {
            (name, *p[1:]): origin.renamed(key, name)
            for p, origin in self.origins.items()
            if p[0] == key and origin.name != self.name
        }
        origins = {**self.origins, **from_files}
        return replace(self, lines={**self.lines, **moved}, origins=origins)

    def error(self, path: KeyPath, message: str, hint: str = "") -> UserError:
        """Returns a problem of the value at ``path``."""
        return UserError(message, where=self.where(path), hint=hint)


def spell(path: KeyPath) -> str:
    """Returns a key path as ``slos.ttft`` or ``max_num_seqs[2]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_yaml(path: Path) -> tuple[dict[str, Any], Source]:
    """Returns a YAML file's mapping and the line of every key; UserError says what is wrong."""
    import yaml

    text = _read_text(path)
    try:
        loader = _loader()(text)
        try:
            node = loader.get_single_node()
            lines: dict[KeyPath, int] = {}
            reader = _Reader(loader, path.name, lines)
            value = reader.read(node, ()) if node is not None else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = path.name if mark is None else f"{path.name}:{mark.line + 1}"
        raise UserError(f"not valid YAML: {error.problem or error.context}", where=where) from None
    except yaml.YAMLError as error:
        raise UserError(f"not valid YAML: {error}", where=path.name) from None
    if reader.errors:
        raise InputErrors(reader.errors)
    if not isinstance(value, dict):
        found = "an empty file" if value is None else type(value).__name__
        raise UserError(f"found {found}", where=path.name, hint="allowed: a mapping of keys")
    return value, Source(path.name, path.resolve().parent, lines)


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError("file is larger than 1 MiB", where=str(path), hint="is it a trace?")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise UserError("not a text file", where=str(path), hint="allowed: YAML, UTF-8") from None


def _loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Reader:
    """Turns YAML nodes into plain values, noting lines and keys that stand twice."""

    def __init__(self, loader: Any, name: str, lines: dict[KeyPath, int]) -> None:
        self.loader, self.name, self.lines = loader, name, lines
        self.errors: list[UserError] = []
        self.num_nodes = 0

    def read(self, node: Any, path: KeyPath) -> Any:
        self.num_nodes += 1
        if self.num_nodes > MAX_NODES:
            raise UserError(f"more than {MAX_NODES} values", where=self.name)
        self.lines.setdefault(path, node.start_mark.line + 1)
        if node.id == "mapping":
            return self._mapping(node, path)
        if node.id == "sequence":
            return [self.read(item, (*path, i)) for i, item in enumerate(node.value)]
        return self.loader.construct_object(node)

    def _mapping(self, node: Any, path: KeyPath) -> dict[str, Any]:
        own = {id(key) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"}
        self.loader.flatten_mapping(node)
        values: dict[str, Any] = {}
        written: set[str] = set()
        for key_node, value_node in node.value:
            key = str(self.loader.construct_object(key_node, deep=True))
            line = key_node.start_mark.line + 1
            if key in written:
                where = f"{self.name}:{line}: {spell((*path, key))}"
                self.errors.append(UserError("key stands twice", where=where))
            if id(key_node) in own:
                written.add(key)
            self.lines[(*path, key)] = line
            values[key] = self.read(value_node, (*path, key))
        return values
