"""Whether a line that a page shows is still what a command prints, figures roughly."""

from __future__ import annotations

import re

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
CLOSE = 0.5
"""Figures of a page may be off by this share: models get better more often than pages."""


def alike(shown: str, printed: str) -> bool:
    """Returns whether two lines have the same words and nearly the same figures.

    Of a shown line that ends in … only what stands before it counts, to its first figure.
    """
    if shown.endswith("…"):
        shown = NUMBER.split(shown)[0]
        return " ".join(printed.split()).startswith(" ".join(shown.split()))
    if _words(shown) != _words(printed):
        return False
    pairs = zip(_figures(shown), _figures(printed), strict=True)
    return all(abs(a - b) <= max(CLOSE * max(abs(a), abs(b)), 3.0) for a, b in pairs)


def _words(line: str) -> str:
    return " ".join(NUMBER.sub("0", line).split())


def _figures(line: str) -> list[float]:
    return [float(text.replace(",", "")) for text in NUMBER.findall(line)]
