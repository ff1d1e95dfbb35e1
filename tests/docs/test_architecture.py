"""Rooms, folders, files, classes and pages that the contributors' pages name are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest

from blocks import ROOT

PAGES = ("ARCHITECTURE.md", "docs/extend.md")
ROOMS = ("hardware_models", "sim", "accuracy", "search", "planning", "verification", "src/dynosim")
FILE = re.compile(r"[\w./-]+\.(?:py|md|yaml|toml)|[\w.-]+(?:/[\w.-]+)*/")
INVENTED = re.compile(r"(?<=/)(?:NAME\.yaml|most_free\.py)$")
"""Files that a page tells its readers to write: the folder is there."""
CLASS = re.compile(r"[A-Z][a-z]\w*(?:\.\w+)?")
DEFINED = re.compile(r"^(?:class (\w+)|(\w+)(?:: \w+)? = )", re.MULTILINE)


def sections(page: str) -> dict[str, list[str]]:
    """Returns what stands in backticks in each section; blocks are left out."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text("utf-8"), flags=re.DOTALL)
    parts = re.split(r"^## ", text, flags=re.MULTILINE)
    return {part.split("\n", 1)[0]: re.findall(r"`([^`\n]+)`", part) for part in parts}


def missing(words: list[str]) -> Iterator[str]:
    """Yields the files and folders that are not there.

    Each is named from the root, or from where something stands that the section has named before.
    """
    places = {ROOT}
    for word in (INVENTED.sub("", word) for word in words if FILE.fullmatch(word)):
        found = [place / word for place in places if (place / word).exists()]
        if not found:
            yield word
        folders = {folder for path in found for folder in (path, *path.parents)}
        places |= {folder for folder in folders if folder.is_relative_to(ROOT)}


@cache
def defined() -> frozenset[str]:
    """Returns the names that the rooms define."""
    files = (file for room in ROOMS for file in (ROOT / room).rglob("*.py"))
    found = (name for file in files for name in DEFINED.findall(file.read_text("utf-8")))
    return frozenset(a or b for a, b in found)


@pytest.mark.parametrize("page", PAGES)
def test_files_and_folders_that_are_named_exist(page: str) -> None:
    assert {
        title: found for title, words in sections(page).items() if (found := [*missing(words)])
    } == {}


@pytest.mark.parametrize("page", PAGES)
def test_classes_that_are_named_exist(page: str) -> None:
    words = [word for words in sections(page).values() for word in words]
    assert {word.split(".")[0] for word in words if CLASS.fullmatch(word)} <= defined()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text("utf-8"))
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def test_every_room_is_in_the_table() -> None:
    assert {f"{room}/" for room in ROOMS} <= set(sections("ARCHITECTURE.md")["Rooms"])


def test_what_is_not_there_is_found() -> None:
    words = ["sim/cluster/routers/", "random.py", "nothing.py", "sim/nothing/", "simulate"]
    assert [*missing(words)] == ["nothing.py", "sim/nothing/"]
