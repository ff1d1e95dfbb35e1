"""What goes to the terminal: results on stdout, everything else on stderr, one screen an error."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

SCREEN_LINES = 20
"""An error leaves room for the prompt and the command above it on a 24-line screen."""


def print_error(message: str) -> None:
    """Prints ``error: message`` on stderr, wrapped and cut to one screen."""
    width = min(max(shutil.get_terminal_size((100, 24)).columns, 40), 120)
    lines = [piece for line in f"error: {message}".splitlines() for piece in _wrap(line, width)]
    if len(lines) > SCREEN_LINES:
        hidden = len(lines) - SCREEN_LINES + 1
        lines = [*lines[: SCREEN_LINES - 1], f"  … and {hidden} more lines"]
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        lines[0] = lines[0].replace("error:", "\x1b[1;31merror:\x1b[0m", 1)
    print("\n".join(lines), file=sys.stderr)


def _wrap(line: str, width: int) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line, width, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
    ) or [""]


def print_note(message: str, *, quiet: bool = False) -> None:
    """Prints what a user may want to know but no script reads, on stderr."""
    if not quiet:
        print(message, file=sys.stderr)


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Prints JSON on stdout; NaN and infinity have no JSON and must not reach here."""
    print(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Returns rows in aligned columns: the first ``left`` to the left, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return "\n".join(line(row) for row in (header, *rows))
