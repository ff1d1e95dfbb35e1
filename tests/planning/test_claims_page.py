"""``docs/claims.md`` names every claim that is shipped."""

from __future__ import annotations

from pathlib import Path

from dynosim.pair import read_pair_file


def test_every_claim_stands_on_the_page(checkout: Path) -> None:
    page = (checkout / "docs" / "claims.md").read_text(encoding="utf-8")
    for path in sorted((checkout / "examples" / "claims").glob("*.yaml")):
        assert f"### {read_pair_file(path).about['title']}" in page
