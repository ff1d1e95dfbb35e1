"""Distributions that the packaging tests look into; building them needs no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOMS = ("accuracy", "hardware_models", "planning", "search", "sim", "verification")


def _build(source: Path, out: Path, *kinds: str) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), *kinds]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def distributions(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of the checkout and the wheel built from that sdist."""
    out = tmp_path_factory.mktemp("dist")
    _build(checkout, out)
    return out


@pytest.fixture(scope="session")
def wheel(distributions: Path) -> Path:
    """The wheel that was built from the sdist."""
    (path,) = distributions.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def sdist(distributions: Path) -> Path:
    """The source distribution."""
    (path,) = distributions.glob("*.tar.gz")
    return path


@pytest.fixture(scope="session")
def wheel_without_links(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a clone on a file system without symbolic links (they become text files)."""
    clone = tmp_path_factory.mktemp("clone") / "dynosim"
    hidden = shutil.ignore_patterns(".*", "__pycache__", "tests", "notebooks", "docs", "runs")
    shutil.copytree(checkout, clone, symlinks=True, ignore=hidden)
    for room in ROOMS:
        link = clone / "src" / "dynosim" / room
        target = os.readlink(link)
        link.unlink()
        link.write_text(target)
    out = tmp_path_factory.mktemp("dist")
    _build(clone, out, "--wheel")
    (path,) = out.glob("*.whl")
    return path
