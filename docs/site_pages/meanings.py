"""What names mean that no docstring explains: one YAML file, complete or the build ends."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).with_name("meanings.yaml")


@cache
def meanings(section: str) -> dict[str, Any]:
    """Returns one section of ``meanings.yaml``; KeyError where there is none."""
    content: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return content[section]


def explained(section: str, names: Iterable[str]) -> list[tuple[str, str]]:
    """Returns (name, meaning) for every name; KeyError lists those without a meaning.

    A key that ends in ``*`` explains all names that begin alike; the longest one holds.
    """
    told = meanings(section)
    pairs = [(name, _meaning(told, name)) for name in names]
    if missing := [name for name, meaning in pairs if not meaning]:
        raise KeyError(f"{FILE.name}: {section}: no meaning for {', '.join(missing)}")
    return pairs


def _meaning(told: dict[str, Any], name: str) -> str:
    if name in told:
        return str(told[name])
    stems = [key[:-1] for key in told if key.endswith("*") and name.startswith(key[:-1])]
    return str(told[f"{max(stems, key=len)}*"]) if stems else ""
