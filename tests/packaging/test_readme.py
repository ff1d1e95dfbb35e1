"""The README is short, its links lead somewhere, and CI runs its commands."""

from __future__ import annotations

import re
from pathlib import Path


def test_readme_is_short_and_its_links_lead_somewhere(checkout: Path) -> None:
    text = (checkout / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 150
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not (checkout / link).exists()] == []
    assert any(link.endswith("frontier.png") for link in links)


def test_ci_runs_the_commands_of_the_readme(checkout: Path) -> None:
    readme = (checkout / "README.md").read_text(encoding="utf-8")
    ci = (checkout / ".ci" / "run").read_text(encoding="utf-8")
    for command in (
        "dynosim search --space examples/quickstart/space.yaml",
        "-e '.[test]'",
        "pytest",
    ):
        assert command in readme
        assert command in ci
    assert ci.rstrip().endswith("\npytest")
