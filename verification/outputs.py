"""The files of a verification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynosim.search.figure import save_png, save_svg
from dynosim.verification.conclusion import Conclusion
from dynosim.verification.document import document
from dynosim.verification.figure import overlay_figure
from dynosim.verification.folder import VerificationFolder, as_json
from dynosim.verification.page import page


def write_outputs(
    folder: VerificationFolder, conclusion: Conclusion, about: Mapping[str, Any]
) -> None:
    """Writes ``verification.json``, ``overlay.png``, ``overlay.svg`` and ``verification.html``."""
    picture = overlay_figure(conclusion.prepared.result, conclusion.measured, conclusion.verdict)
    folder.write_with("overlay.png", lambda path: save_png(picture, path))
    folder.write_with("overlay.svg", lambda path: save_svg(picture, path))
    svg = (folder.path / "overlay.svg").read_text(encoding="utf-8")
    folder.write("verification.html", page(conclusion, words_of(about), svg).encode())
    folder.write("verification.json", as_json(document(conclusion, about)))


def words_of(about: Mapping[str, Any]) -> str:
    """Returns how it was measured, in words."""
    return ", ".join(f"{name} {value}" for name, value in about.items())
