"""Every file of ``examples/`` as it is, with the command that takes it."""

from __future__ import annotations

from pathlib import Path

from site_pages.markdown import fence

KINDS = {".yaml": "yaml", ".csv": "text", ".jsonl": "json", ".py": "python"}
ROWS = 12
"""Lines of a data file that are shown."""


def examples_page(root: Path) -> str:
    """Returns all examples of a checkout, folder by folder."""
    folders = sorted(p for p in (root / "examples").iterdir() if p.is_dir())
    parts = "\n".join(_folder(root, folder) for folder in folders)
    return (
        "# Examples\n\n"
        "These files stand in `examples/` of the checkout; paths are from its root.\n\n" + parts
    )


def anchor(path: str) -> str:
    """Returns where on the page a file of ``examples/`` stands."""
    return path.removeprefix("examples/").replace("/", "-").replace(".", "-").replace("_", "-")


def _folder(root: Path, folder: Path) -> str:
    files = sorted(p for p in folder.iterdir() if p.suffix in KINDS)
    shown = "\n".join(_file(root, path) for path in files)
    return f"## {folder.name.replace('_', ' ')}\n\n{shown}"


def _file(root: Path, path: Path) -> str:
    name = path.relative_to(root).as_posix()
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix in (".csv", ".jsonl") and len(lines) > ROWS:
        lines = [line[:160] for line in lines[:ROWS]] + [f"… {len(lines):,} lines"]
    return (
        f"### {path.name} {{ #{anchor(name)} }}\n\n"
        f"{fence(chr(10).join(lines), KINDS[path.suffix], name)}"
    )
