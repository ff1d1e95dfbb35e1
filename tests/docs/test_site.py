"""The site builds without a warning, asks nobody else for anything, and has a way to every page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements that make a browser fetch something, and the attribute that says what."""


@pytest.fixture(scope="module")
def site(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    pytest.importorskip("material", reason="mkdocs-material is not installed (dynosim[docs])")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class Loaded(HTMLParser):
    """The addresses that a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "link" and found.get("rel") in ("canonical", "prev", "next"):
            return
        if (address := found.get(LOADING.get(tag, ""))) is not None:
            self.addresses.append(address)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        parser = Loaded()
        parser.feed(text)
        outside = [a for a in parser.addresses if re.match(r"(https?:)?//", a)]
        assert outside == [], page
    for sheet in site.rglob("*.css"):
        found = re.findall(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//[^)\"']+", sheet.read_text())
        assert found == [], sheet


def test_links_lead_to_pages_and_places_that_are_there(site: Path) -> None:
    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue
        for target in re.findall(r'href="([^":]+)"', page.read_text(encoding="utf-8")):
            path, _, place = target.partition("#")
            to = (page.parent / path).resolve() if path else page
            assert to.exists(), f"{page.name}: {target}"
            if place and to.suffix == ".html":
                assert f'id="{place}"' in to.read_text(encoding="utf-8"), f"{page.name}: {target}"


def test_every_page_is_in_the_navigation(checkout: Path) -> None:
    nav = yaml.safe_load((checkout / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    listed = set(_leaves(nav))
    written = {p.relative_to(checkout / "docs").as_posix() for p in checkout.glob("docs/**/*.md")}
    assert written - listed == set()


def _leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    values = nav.values() if isinstance(nav, dict) else nav
    return [leaf for value in values for leaf in _leaves(value)]
