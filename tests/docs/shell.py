"""Commands as pages give them: run where they are dynosim's and quick, else parsed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from cyclopts import CycloptsError

from dynosim.cli import build_app

TOOLS = frozenset(
    [
        ".",
        "createdb",
        "dask",
        "optuna-dashboard",
        "pytest",
        "python3",
        "trtllm-serve",
        "vllm",
        "mkdocs",
        "kubectl",
    ]
)
"""Commands of others, of which a page may show any use."""


def parse(words: list[str]) -> None:
    """Raises CycloptsError where dynosim's parser refuses the words after ``dynosim``."""
    build_app().parse_args(words, exit_on_error=False, print_error=False)


def cut(words: list[str], *, is_whole: bool) -> list[str]:
    """Returns a command as a test runs it: searches in one process and, unless whole, short."""
    if words[0] != "search" or "--dry-run" in words:
        return words
    few = () if is_whole or "--n-trials" in words else ("--n-trials", "8")
    return [*words, *few, "--workers", "1"]


def problem(words: list[str], root: Path) -> str | None:
    """Returns what is wrong with a command without running it; None where it is a right one."""
    words = _without_variables(words)
    if not words:
        return None
    name, *rest = words
    if name == "dynosim":
        try:
            parse(rest)
        except CycloptsError as error:
            return str(error)
        return None
    if name == "pip":
        return _pip(rest, root)
    if name in ("python", "bash") and rest[0] not in ("-m", "-c"):
        return None if (root / rest[0]).exists() else f"no file {rest[0]}"
    return None if name in TOOLS or name == "python" else f"no test knows the command {name!r}"


def _without_variables(words: list[str]) -> list[str]:
    """Returns the words after ``NAME=VALUE``."""
    while words and re.fullmatch(r"[A-Z][A-Z0-9_]*=.*", words[0]):
        words = words[1:]
    return words


def _pip(words: list[str], root: Path) -> str | None:
    """Returns which extra of dynosim's a ``pip install`` names that there is not."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = project["optional-dependencies"]
    for word in words:
        found = re.fullmatch(r"(?:dynosim|\.)\[([\w,-]+)\]", word)
        missing = set(found[1].split(",")) - set(known) if found else set()
        if missing:
            return f"no extra {sorted(missing)}"
    return None
