"""Every command, file and snippet that README and docs show is run, or at least parsed.

A page's blocks are taken in order in one folder that has ``examples/``, so that a command finds
what the ones before it left. Other tools' commands are looked at, not run. Comments before a block
say otherwise (:mod:`blocks`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from blocks import PAGES, ROOT, Block, blocks
from dynosim.cli import run
from likeness import alike
from shell import cut, problem
from yaml_kinds import LOADERS

LANGUAGES = frozenset(("bash", "console", "csv", "json", "jsonl", "python", "text", "yaml"))


class Page:
    """One page's blocks in the making: a folder, a namespace, what was printed last."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capfd = folder, capfd
        self.names: dict[str, Any] = {"__name__": "page"}
        self.printed = ""

    def take(self, block: Block) -> None:
        """Runs or parses a block; AssertionError says what is wrong with it, and where."""
        assert block.language in LANGUAGES, f"{block.where}: language {block.language!r}"
        if block.title and block.language not in ("bash", "console"):
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        take = getattr(self, f"_{block.language}", None)
        if take is not None:
            take(block)

    def _bash(self, block: Block) -> None:
        wrong = {" ".join(w): p for w in block.commands if (p := problem(w, ROOT))}
        assert not wrong, f"{block.where}: {wrong}"
        if "parse-only" in block.marks:
            assert block.marks["parse-only"], f"{block.where}: parse-only needs a reason"
            return
        self.capfd.readouterr()
        wanted = int(block.marks.get("exit", 0))
        for words in block.commands:
            if words[0] != "dynosim":
                continue
            code = run(cut(words[1:], is_whole=block.marks.get("run") == "whole"))
            out, err = self.capfd.readouterr()
            assert code == wanted, f"{block.where}: {' '.join(words)}\n{err}"
            self.printed = out + err

    def _yaml(self, block: Block) -> None:
        kind = block.marks.get("as", "space")
        path = self.folder / (block.title or "block.yaml")
        path.write_text(block.text, encoding="utf-8")
        LOADERS[kind](path)

    def _python(self, block: Block) -> None:
        exec(compile(block.text, block.where, "exec"), self.names)

    def _json(self, block: Block) -> None:
        json.loads(block.text)

    def _jsonl(self, block: Block) -> None:
        assert all(json.loads(line) for line in block.text.splitlines())

    def _text(self, block: Block) -> None:
        if block.marks.get("as") == "output":
            printed = self.printed.splitlines()
            shown = [line.rstrip() for line in block.text.splitlines() if line.strip("… ")]
            missing = [line for line in shown if not any(alike(line, p) for p in printed)]
            assert not missing, f"{block.where}: not printed:\n{missing}\nbut\n{self.printed}"


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_blocks_do_what_the_page_says(
    path: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    page = Page(tmp_path, capfd)
    for block in blocks(path, ROOT):
        page.take(block)
