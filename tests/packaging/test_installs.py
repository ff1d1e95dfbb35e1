"""Installed from a wheel or in place, ``dynosim`` works and leaves no generic names behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOMS = ("accuracy", "hardware_models", "planning", "search", "sim", "verification")


@dataclass(frozen=True)
class Environment:
    """A fresh virtual environment that also sees the dependencies of the one running the tests."""

    folder: Path

    @property
    def scripts(self) -> Path:
        """Where console scripts stand."""
        return self.folder / ("Scripts" if os.name == "nt" else "bin")

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.scripts / ("python.exe" if os.name == "nt" else "python")

    def run(self, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Returns the finished command; PYTHONPATH and the like are not passed on."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        return subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True)

    def pip_install(self, *arguments: str, cwd: Path) -> None:
        """Installs without dependencies and without an index."""
        base = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet"]
        done = self.run(*base, "--no-index", "--no-deps", *arguments, cwd=cwd)
        assert done.returncode == 0, done.stderr


def new_environment(folder: Path) -> Environment:
    """Returns an environment to which a path line lends the dependencies of the running one.

    A path line is not a site folder: an editable install of the running environment stays
    invisible through it.
    """
    venv.create(folder, with_pip=False)
    environment = Environment(folder)
    show = "import sysconfig; print(sysconfig.get_path('purelib'))"
    where = environment.run(str(environment.python), "-c", show, cwd=folder).stdout.strip()
    lent = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (Path(where) / "lent.pth").write_text("\n".join(sorted(lent)) + "\n")
    return environment


@pytest.fixture(scope="session")
def regular(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel installed."""
    environment = new_environment(tmp_path_factory.mktemp("regular"))
    environment.pip_install(str(wheel), cwd=environment.folder)
    return environment


@pytest.fixture(scope="session")
def editable(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with a copy of the checkout installed in place (folder ``clone``)."""
    environment = new_environment(tmp_path_factory.mktemp("editable"))
    hidden = shutil.ignore_patterns(".*", "__pycache__", "tests", "docs", "runs")
    shutil.copytree(checkout, environment.folder / "clone", symlinks=True, ignore=hidden)
    environment.pip_install("--no-build-isolation", "--editable", "clone", cwd=environment.folder)
    return environment


@pytest.fixture(params=["regular", "editable"])
def installed(request: pytest.FixtureRequest) -> Environment:
    """Each way of installing in turn."""
    environment = request.getfixturevalue(request.param)
    assert isinstance(environment, Environment)
    return environment


def test_console_script_and_module_answer_alike(installed: Environment, tmp_path: Path) -> None:
    script = installed.run(str(installed.scripts / "dynosim"), "--version", cwd=tmp_path)
    module = installed.run(str(installed.python), "-m", "dynosim", "--version", cwd=tmp_path)
    assert script.returncode == module.returncode == 0, script.stderr + module.stderr
    assert script.stdout == module.stdout != ""


def test_shipped_data_is_found(installed: Environment, tmp_path: Path) -> None:
    done = installed.run(str(installed.scripts / "dynosim"), "list", "gpus", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "h100" in done.stdout.lower()


@pytest.mark.parametrize("room", ROOMS)
def test_room_is_importable_only_under_dynosim(
    installed: Environment, tmp_path: Path, room: str
) -> None:
    code = (
        f"import importlib.util as u, dynosim.{room};"
        f"assert u.find_spec('{room}') is None, u.find_spec('{room}')"
    )
    done = installed.run(str(installed.python), "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_editable_install_sees_a_new_file_at_once(editable: Environment, tmp_path: Path) -> None:
    (editable.folder / "clone" / "sim" / "just_added.py").write_text("ANSWER = 42\n")
    code = "import dynosim.sim.just_added as m; print(m.ANSWER)"
    done = editable.run(str(editable.python), "-c", code, cwd=tmp_path)
    assert done.stdout.strip() == "42", done.stderr


def test_type_checker_sees_the_rooms_of_an_editable_install(
    editable: Environment, tmp_path: Path
) -> None:
    user = tmp_path / "user.py"
    user.write_text(
        "from dynosim.sim.deployment import Deployment\n"
        "reveal_type(Deployment(model='m', gpu='g').replicas)\n"
    )
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--python-executable"]
    cache = str(tmp_path / "cache")
    done = editable.run(
        *command, str(editable.python), "--cache-dir", cache, str(user), cwd=tmp_path
    )
    assert 'int"' in done.stdout, done.stdout + done.stderr
