"""What MkDocs runs while it builds the site: pages from the code, links between all of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

from site_pages.links import COPIES, rewritten  # noqa: E402
from site_pages.pages import generated_pages  # noqa: E402

ORIGINS = {place: origin for origin, place in COPIES.items() if place != "index.md"}
"""Pages that are copies of files beside ``docs/``."""


def on_config(config: Any) -> Any:
    """Leaves pages out of the navigation that other work brings and that are not there yet."""
    config.nav = _present(config.nav)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are written from the code."""
    from mkdocs.structure.files import File

    for place, text in generated_pages(DOCS.parent).items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Makes links hold in the site that hold in the checkout."""
    place = page.file.src_uri
    if place.startswith("reference/"):
        return markdown
    origin = ORIGINS.get(place, f"docs/{place}")
    return rewritten(markdown, place, origin, {f.src_uri for f in files})


def _present(nav: Any) -> Any:
    """Returns the navigation without the optional pages that are absent."""
    if isinstance(nav, list):
        return [kept for item in nav if (kept := _present(item)) is not None]
    if isinstance(nav, dict):
        kept = {title: _present(item) for title, item in nav.items()}
        return kept if all(item is not None for item in kept.values()) else None
    return nav if nav not in OPTIONAL or (DOCS / nav).exists() else None


OPTIONAL = ("verification.md",)
"""Pages of the navigation that are there only in some checkouts."""
