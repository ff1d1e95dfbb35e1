"""Typed reading of a Hugging Face ``config.json``: a bad value names its file and key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynosim.hardware_models.errors import UserError


@dataclass(frozen=True)
class Fields:
    """Returns values of one configuration mapping by key; ``where`` is the file it stands in."""

    values: Mapping[str, Any]
    where: str

    def error(self, key: str, message: str, hint: str = "") -> UserError:
        """Returns the error that names this file and ``key``."""
        return UserError(message, where=f"{self.where}: {key}", hint=hint)

    def has(self, key: str) -> bool:
        """Whether the key is there with a value that is not null."""
        return self.values.get(key) is not None

    def integer(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """Returns the first of ``keys`` that is there, a whole number of at least ``least``."""
        for key in keys:
            if self.has(key):
                return self._checked(key, self.values[key], least)
        if default is None:
            raise self.error(keys[0], "missing", f"also accepted: {', '.join(keys[1:]) or 'none'}")
        return default

    def _checked(self, key: str, value: Any, least: int) -> int:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole or value < least:
            raise self.error(key, f"expected a whole number >= {least}, found {value!r}")
        return int(value)

    def text(self, *keys: str, default: str = "") -> str:
        """Returns the first of ``keys`` that is there, a string."""
        for key in keys:
            if self.has(key):
                if not isinstance(self.values[key], str):
                    raise self.error(key, f"expected text, found {self.values[key]!r}")
                return str(self.values[key])
        return default

    def flag(self, key: str, default: bool) -> bool:
        """Returns a boolean."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, f"expected true or false, found {value!r}")
        return value

    def items(self, key: str) -> list[Any]:
        """Returns a list; empty where the key is absent."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error(key, f"expected a list, found {value!r}")
        return value

    def mapping(self, key: str) -> Fields | None:
        """Returns a nested mapping; None where the key is absent."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(key, f"expected a mapping, found {value!r}")
        return Fields(value, f"{self.where}: {key}")


def read_json(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file; UserError with file and line where it is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise UserError("not a text file", where=str(path)) from error
    except json.JSONDecodeError as error:
        raise UserError(f"not JSON: {error.msg}", where=f"{path}:{error.lineno}") from error
    if not isinstance(content, dict):
        raise UserError("expected a JSON object", where=str(path))
    return content
