"""What the pages show of outputs is what the committed examples print."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.parametrize(("page", "golden"), [("bottlenecks.md", "simulate_what_if.txt")])
def test_pages_show_what_examples_print(checkout: Path, page: str, golden: str) -> None:
    printed = (Path(__file__).parent / "golden" / golden).read_text(encoding="utf-8")
    text = (checkout / "docs" / page).read_text(encoding="utf-8")
    blocks = [part.split("```")[0] for part in text.split("```text\n")[1:]]
    assert blocks
    for block in blocks:
        assert block in printed, f"{page} shows what {golden} has no more"
