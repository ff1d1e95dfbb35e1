"""Pieces of Markdown: tables, cells, code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table, every cell on one line."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines) + "\n"


def cell(value: object) -> str:
    """Returns a value as one cell: no line breaks, no bars that would end it."""
    return " ".join(str(value).split()).replace("|", "\\|")


def code(value: object) -> str:
    """Returns a value in backticks; nothing where there is none."""
    text = str(value)
    return f"`{text}`" if text else ""


def name(text: str) -> str:
    """Returns an identifier as code that may break behind its underscores."""
    return f"<code>{text.replace('_', '_<wbr>')}</code>"


def fence(text: str, language: str = "text", title: str = "") -> str:
    """Returns a fenced block."""
    named = f' title="{title}"' if title else ""
    return f"```{language}{named}\n{text.rstrip()}\n```\n"


def link(title: str, url: str) -> str:
    """Returns a link, or the bare title where there is no address."""
    return f"[{title}]({url})" if url else title


def sentence(text: str) -> str:
    """Returns the first paragraph of a docstring on one line, in Markdown's code marks."""
    first = text.strip().split("\n\n")[0]
    return " ".join(first.split()).replace("``", "`")
