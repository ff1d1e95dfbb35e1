"""Forgiving names: many spellings, one thing; a near miss is an error that lists the nearest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from dynosim.hardware_models.errors import unknown_name

_VENDOR_WORDS = re.compile(r"\b(nvidia|tesla|geforce)\b")
_SEPARATORS = re.compile(r"[^a-z0-9.]+")


def fold(name: str) -> str:
    """Returns ``name`` in lower case without separators, the form in which spellings compare."""
    return _SEPARATORS.sub("", name.casefold())


def fold_gpu(name: str) -> str:
    """Returns :func:`fold` of a GPU name without the words that vendors put before it."""
    return fold(_VENDOR_WORDS.sub("", name.casefold()))


def spellings(names: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Returns folded spelling -> key for GPU keys and their aliases.

    Raises ValueError where one spelling would stand for two keys.
    """
    index: dict[str, str] = {}
    for key, aliases in names.items():
        for alias in (key, *aliases):
            if index.setdefault(fold_gpu(alias), key) != key:
                raise ValueError(f"{alias!r} names both {index[fold_gpu(alias)]} and {key}")
    return index


def one_hub_name(found: str, known: Iterable[str], *, where: str = "") -> str:
    """Returns the one hub name of ``known`` that ``found`` means.

    ``found`` may differ in case and separators, and may leave out the organisation where what
    remains names one model. Raises UserError for an unknown or an ambiguous name.
    """
    names = list(known)
    wanted = fold(found)
    exact = [n for n in names if fold(n) == wanted] if "/" in found else []
    matches = exact or [n for n in names if fold(n.partition("/")[2]) == wanted]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise unknown_name("model", f"{found} (ambiguous)", matches, where=where)
    raise unknown_name("model", found, names, where=where)
