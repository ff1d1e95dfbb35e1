"""Notebooks are committed as they ran: with outputs, small, and without traces of the machine.

That they run, and that what they say of their figures holds, is tested by running them (nbmake).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
MOST_BYTES = 300_000


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    document = json.loads(notebook.read_text(encoding="utf-8"))
    return [cell for cell in document["cells"] if cell["cell_type"] == kind]


def test_it_is_small_and_listed_in_the_readme(notebook: Path, checkout: Path) -> None:
    assert notebook.stat().st_size < MOST_BYTES
    readme = (checkout / "README.md").read_text(encoding="utf-8")
    assert f"(notebooks/{notebook.name})" in readme


def test_every_cell_has_run_in_order_and_none_ended_in_an_error(notebook: Path) -> None:
    code = cells(notebook, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    kinds = {output["output_type"] for cell in code for output in cell["outputs"]}
    assert kinds <= {"stream", "display_data", "execute_result"}


def test_it_keeps_no_times_paths_or_warnings_of_the_machine_it_ran_on(notebook: Path) -> None:
    for cell in cells(notebook, "code"):
        assert cell["metadata"] == {}
        for output in cell["outputs"]:
            assert output.get("name") != "stderr"
            text = "".join(output.get("text", output.get("data", {}).get("text/plain", "")))
            assert not re.search(r"(?:^|[\s'\"(])/(?:[\w.-]+/)+|[A-Z]:\\\\", text), text


def test_each_statement_of_the_prose_is_held_to_its_figures(notebook: Path) -> None:
    sources = ["".join(cell["source"]) for cell in cells(notebook, "code")]
    assert sum(source.count("assert ") for source in sources) >= 3


def test_links_lead_somewhere(notebook: Path) -> None:
    text = "\n".join("".join(cell["source"]) for cell in cells(notebook, "markdown"))
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not (notebook.parent / link).exists()] == []
