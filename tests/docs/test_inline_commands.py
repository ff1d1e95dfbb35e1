"""Commands inside of sentences name commands and flags that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from blocks import PAGES, ROOT
from dynosim.cli import COMMANDS, GROUPS, build_app


@cache
def flags_of(command: tuple[str, ...]) -> frozenset[str]:
    app = build_app()
    for name in command:
        app = app[name]
    found = {name for a in app.assemble_argument_collection() for name in a.names}
    return frozenset(found | {"--help"})


def inline_code(path: Path) -> Iterator[str]:
    parser = MarkdownIt("commonmark").enable("table")
    for token in parser.parse(path.read_text(encoding="utf-8")):
        for child in token.children or ():
            if child.type == "code_inline" and child.content.startswith("dynosim "):
                yield child.content


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_commands_in_sentences_exist(path: Path) -> None:
    for text in inline_code(path):
        words = text.replace("…", " ").split()[1:]
        if not words or words[0].startswith("-") or words[0].isupper():
            continue
        size = 2 if words[0] in GROUPS and len(words) > 1 else 1
        command = tuple(words[:size])
        assert words[0] in COMMANDS or words[0] in GROUPS, text
        if command == (words[0],) and words[0] in GROUPS:
            continue
        given = {
            re.split(r"[=\[]", w)[0].replace("_", "-") for w in words if re.match("--?[a-z]", w)
        }
        assert given - flags_of(command) == set(), text
