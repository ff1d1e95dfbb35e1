"""Links of pages that lead out of ``docs/``: to their copy in the site, or to the file's name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection

from site_pages.examples import anchor

COPIES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "hardware_models/data/tables/README.md": "project/kernel-table-data.md",
}
"""Files of the checkout that are pages of the site."""

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def rewritten(markdown: str, page: str, origin: str, pages: Collection[str]) -> str:
    """Returns a page's Markdown with links that hold in the site.

    ``page`` is its place in the site, ``origin`` that of its source in the checkout, from whose
    folder links are written; ``pages`` are all places of the site. A link to a file that the site
    lacks becomes its name.
    """

    def replace(found: re.Match[str]) -> str:
        image, text, target = found.groups()
        path, _, fragment = target.partition("#")
        if ":" in path or not path:
            return found[0]
        place = _place(posixpath.normpath(posixpath.join(posixpath.dirname(origin), path)))
        if place is None or place.partition("#")[0] not in pages:
            return text if text.startswith("`") else f"{text} (`{path.lstrip('./')}`)"
        to = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return f"{image}[{text}]({to}{'#' + fragment if fragment else ''})"

    return _outside_fences(markdown, lambda text: LINK.sub(replace, text))


def _place(path: str) -> str | None:
    """Returns where in the site a file of the checkout stands."""
    if path in COPIES:
        return COPIES[path]
    if path.startswith("examples/"):
        return f"reference/examples.md#{anchor(path)}"
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def _outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    parts = re.split(r"(^```.*?^```[ ]*$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else change(part) for part in parts)
