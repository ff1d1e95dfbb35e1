"""The fenced blocks of a Markdown page, each with what stands before it for the tests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
"""All pages whose commands and files are tested."""

MARK = re.compile(r"<!--\s*(parse-only|as|exit|run):\s*(.*?)\s*-->", re.DOTALL)
TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """One block: where it stands, its language, its text.

    ``title`` is the file that the text is. ``marks`` are HTML comments right before the block:
    ``parse-only: REASON`` (its commands are not run), ``run: whole`` (searches are not cut short),
    ``exit: CODE`` (its commands end with that code), ``as: KIND`` (which loader reads the YAML;
    of a text, ``as: output``: the commands before it print its lines).
    """

    page: str
    line: int
    language: str
    text: str
    title: str | None = None
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """``page:line``, for messages."""
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command of a shell block, ``&&`` and comments taken away."""
        joined = self.text.replace("\\\n", " ")
        found = []
        for line in joined.splitlines():
            words = shlex.split(line, comments=True)
            while "&&" in words:
                at = words.index("&&")
                found.append(words[:at])
                words = words[at + 1 :]
            found.append(words)
        return [words for words in found if words]


def blocks(path: Path, root: Path) -> Iterator[Block]:
    """Yields the fenced blocks of a page; ValueError for an indented one, which has no language."""
    page = path.relative_to(root).as_posix()
    marks: dict[str, str] = {}
    parser = MarkdownIt("commonmark").enable("table")
    for token in parser.parse(path.read_text(encoding="utf-8")):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "code_block":
            raise ValueError(f"{page}:{line}: an indented block; fence it and name its language")
        if token.type == "fence":
            language, _, rest = token.info.partition(" ")
            title = TITLE.search(rest)
            yield Block(page, line, language, token.content, title and title[1], marks)
        if token.type in ("fence", "html_block", "paragraph_open", "heading_open"):
            marks = dict(MARK.findall(token.content)) if token.type == "html_block" else {}
