"""The rooms are top-level folders of the checkout and sub-packages of one distribution."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

ROOMS = ("accuracy", "hardware_models", "planning", "search", "sim", "verification")


def files_of_rooms(checkout: Path) -> set[str]:
    """Every file of the rooms, as a path in the wheel."""
    return {
        f"dynosim/{path.relative_to(checkout).as_posix()}"
        for room in ROOMS
        for path in (checkout / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def contents(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if not name.endswith("/")]


@pytest.mark.parametrize("room", ROOMS)
def test_each_link_leads_to_its_room(checkout: Path, room: str) -> None:
    link = checkout / "src" / "dynosim" / room
    assert link.is_symlink()
    assert link.resolve() == checkout / room
    assert (checkout / room / "__init__.py").is_file()


def test_wheel_holds_one_top_level_package(wheel: Path) -> None:
    tops = {PurePosixPath(name).parts[0] for name in contents(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dynosim"}


def test_wheel_holds_every_file_once(wheel: Path, checkout: Path) -> None:
    names = contents(wheel)
    assert len(names) == len(set(names))
    assert files_of_rooms(checkout) <= set(names)
    assert {"dynosim/cli.py", "dynosim/__main__.py", "dynosim/py.typed"} <= set(names)


def test_wheel_ships_the_data(wheel: Path) -> None:
    data = [n for n in contents(wheel) if n.startswith("dynosim/hardware_models/data/")]
    suffixes = {PurePosixPath(name).suffix for name in data}
    assert ".yaml" in suffixes
    assert len(data) > 10


def test_wheel_carries_licence_and_notice(wheel: Path) -> None:
    names = {PurePosixPath(n).name for n in contents(wheel) if ".dist-info/licenses/" in n}
    assert {"LICENSE", "NOTICE"} <= names


def test_wheel_is_the_same_from_a_clone_without_links(
    wheel: Path, wheel_without_links: Path
) -> None:
    assert sorted(contents(wheel_without_links)) == sorted(contents(wheel))


def test_sdist_holds_what_tests_need_and_no_linked_copies(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {str(PurePosixPath(*PurePosixPath(n).parts[1:])) for n in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "tests/conftest.py"} <= names
    assert {"sim/__init__.py", "examples/quickstart/space.yaml"} <= names
    assert not [n for n in names if n.startswith("src/dynosim/sim/")]
