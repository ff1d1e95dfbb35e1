"""A backend's arguments from ``data/launch/*.yaml``; what its version does not know is refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from dynosim.hardware_models.backends import version_key
from dynosim.hardware_models.cards import DATA, read_yaml
from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.planning.exports.base import Candidate


@cache
def launch_card(backend: str) -> dict[str, Any]:
    """Returns the card of a backend; callers must not change it."""
    return read_yaml(DATA / "launch" / f"{backend}.yaml")


def flags(candidate: Candidate) -> list[str]:
    """Returns the command-line arguments of the fields that were given.

    Raises UserError, all at once, for fields and values that the backend's version has no
    argument for.
    """
    words: list[str] = []
    for row, value in _rows(candidate):
        words += _flag(row, value)
    return words


def keys(candidate: Candidate) -> dict[str, Any]:
    """Returns the nested keys of a backend's options file for the fields that were given."""
    nested: dict[str, Any] = {}
    for row, value in _rows(candidate):
        if "key" in row:
            set_key(nested, row["key"], value)
    return nested


def set_key(nested: dict[str, Any], path: str, value: Any) -> None:
    """Sets ``a.b.c`` in nested mappings."""
    *folders, name = path.split(".")
    for folder in folders:
        nested = nested.setdefault(folder, {})
    nested[name] = value


def _rows(candidate: Candidate) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yields (row, value in the backend's spelling) of the fields with a row of their own."""
    card = launch_card(candidate.backend)
    errors: list[UserError] = []
    for name, value in candidate.given():
        if name in card["elsewhere"] or name in card["simulation_only"]:
            continue
        try:
            row = card["fields"].get(name)
            if row is None:
                raise _no_such_knob(candidate, name)
            _check_since(candidate, row, f"--{name.replace('_', '-')}")
            spelt = _spelt(candidate, row, value)
        except UserError as error:
            errors.append(error.at(candidate.key(name)))
            continue
        yield row, spelt
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)


def _no_such_knob(candidate: Candidate, name: str) -> UserError:
    known = ", ".join(launch_card(candidate.backend)["fields"])
    return UserError(
        f"{candidate.backend} {candidate.version} has no such knob",
        hint=f"leave it out; it knows: {known}",
    )


def _check_since(candidate: Candidate, row: dict[str, Any], what: str) -> None:
    since = row.get("since")
    if since is not None and version_key(candidate.version) < version_key(str(since)):
        raise UserError(
            f"{candidate.backend} {candidate.version} does not know {what}",
            hint=f"known from {since} on; leave it out, or name a later backend_version",
        )


def _spelt(candidate: Candidate, row: dict[str, Any], value: Any) -> Any:
    words = row.get("words")
    if words is None:
        return value
    if value not in words:
        raise UserError(
            f"{candidate.backend} {candidate.version} does not know {value!r}",
            hint=f"allowed: {', '.join(words)}",
        )
    _check_since(candidate, words[value], repr(value))
    return words[value]["word"]


def _flag(row: dict[str, Any], value: Any) -> list[str]:
    if "if_true" in row:
        return [row["if_true"]] if value else []
    if "if_false" in row:
        return [] if value else [row["if_false"]]
    if "flag" not in row:
        return []
    if row.get("switch"):
        return [row["flag"] if value else row["flag"].replace("--", "--no-", 1)]
    return [row["flag"], f"{value:g}" if isinstance(value, float) else str(value)]
