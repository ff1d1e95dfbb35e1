"""The report as HTML: its parts put into one file, and what the browser may do with it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

SCRIPTS = ("nodes", "scale", "shapes", "trials", "scatter", "detail", "filters", "table", "plots",
           "main")  # fmt: skip
"""The page's scripts, in the order in which they need each other."""


def page(document: Mapping[str, Any]) -> str:
    """Returns the HTML that shows a document of :func:`dynosim.search.report.document.document`.

    The page may load nothing and runs its own script only (by digest), whatever the names in the
    document hold.
    """
    style = _part("style.css")
    body = "".join(_part(f"{name}.js") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{body}}})();\n'
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(_part("template.html")).substitute(
        policy=policy,
        title=html.escape(str(document["title"])),
        style=style,
        script=script,
        document=_embedded(document),
    )


def _part(name: str) -> str:
    return (files(__package__) / "page" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _embedded(document: Mapping[str, Any]) -> str:
    """Returns JSON that no text in it can end early: HTML knows ``<`` only."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c")
