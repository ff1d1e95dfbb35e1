"""The study in PostgreSQL, with a server started for real; and Optuna Dashboard on either storage.

Only where PostgreSQL (apt install postgresql) and the extra 'postgres' are installed; the dashboard
where optuna-dashboard is.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from analytic_evaluator import analytic, screen

from dynosim.hardware_models.errors import UserError
from dynosim.search import search
from dynosim.search.outcome import Outcome, Task
from dynosim.search.shared_study import check_storage, without_password
from dynosim.sim.deployment import Deployment

COMPARED = ("frontier.csv", "trials.csv", "manifest.json", "report.html")
# SQLAlchemy, Alembic and psycopg warn of their own futures; connections that a test's server takes
# with it are never closed in good order.
pytestmark = pytest.mark.filterwarnings("default")


def server_program(name: str) -> str | None:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, folders)]))


class Server:
    """A PostgreSQL of this test's own; under another user where the tests run as root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user = "postgres" if os.geteuid() == 0 else None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        if self.user is not None:
            shutil.chown(folder, self.user)
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "dynosim", "-N")
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://dynosim:secret@127.0.0.1:{self.port}/postgres"

    def _run(self, name: str, *arguments: str) -> None:
        program = server_program(name)
        assert program is not None
        subprocess.run(
            [program, *arguments], user=self.user, check=True, cwd=self.folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -F"
        log = str(self.folder / "log")
        data = str(self.folder / "data")
        self._run("pg_ctl", "-D", data, "-o", options, "-l", log, "-w", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")
    if server_program("pg_ctl") is None:
        pytest.skip("no PostgreSQL on this machine (apt install postgresql)")
    # Not pytest's own folder, which other users may not enter.
    folder = Path(tempfile.mkdtemp(prefix="dynosim-postgres-"))
    started = Server(folder)
    yield started
    with contextlib.suppress(subprocess.CalledProcessError):
        started.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def space(small_values: dict[str, Any], request: pytest.FixtureRequest) -> dict[str, Any]:
    """A space of each test's own, and so a study of its own."""
    return {**small_values, "seed": sum(request.node.name.encode())}


class Counting:
    """Counts calls, and calls back at one of them."""

    def __init__(self, at: int = -1, then: Any = None) -> None:
        self.calls, self._at, self._then = 0, at, then

    def __call__(self, deployment: Deployment, task: Task) -> Outcome:
        self.calls += 1
        if self.calls == self._at:
            self._then()
        return analytic(deployment, task)


def run(space: dict[str, Any], folder: Path, storage: str, evaluator: Any = analytic) -> None:
    search(
        space, output_dir=folder, resume=True, workers=1, storage=storage, evaluator=evaluator,
        screen=screen,
    )  # fmt: skip


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in COMPARED]


def studies(server: Server) -> dict[str, int]:
    """The studies in the database with their numbers of trials, as any Optuna sees them."""
    import optuna

    url = server.url.replace("postgresql://", "postgresql+psycopg://")
    found = optuna.get_all_study_summaries(storage=url)
    return {study.study_name: study.n_trials for study in found}


def test_another_host_goes_on_where_one_stopped(
    server: Server, space: dict[str, Any], tmp_path: Path
) -> None:
    first, rest = Counting(), Counting()
    run({**space, "n_trials": 40}, tmp_path / "here", server.url, first)
    assert first.calls == 40
    # Another folder, as another host has it: all it shares is the space and the database.
    run({**space, "n_trials": 60}, tmp_path / "there", server.url, rest)
    assert rest.calls < 60
    run({**space, "n_trials": 60}, tmp_path / "alone", "journal")
    assert contents(tmp_path / "there") == contents(tmp_path / "alone")
    assert max(studies(server).values()) >= 60


def test_a_run_that_was_local_is_shared_as_a_whole(
    server: Server, space: dict[str, Any], tmp_path: Path
) -> None:
    run(space, tmp_path / "run", "journal")
    before = studies(server)
    again = Counting()
    run(space, tmp_path / "run", server.url, again)
    assert again.calls == 0
    (name,) = studies(server).keys() - before.keys()
    assert studies(server)[name] == 144


def test_a_database_that_goes_down_costs_nothing_that_is_finished(
    server: Server, space: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        run(space, tmp_path / "run", server.url, Counting(30, server.stop))
    text = str(caught.value)
    assert "storage: postgresql://dynosim@127.0.0.1" in text
    assert "the database does not answer" in text
    assert "trials are safe: continue with --resume" in text
    assert "secret" not in text
    with pytest.raises(UserError, match="the database does not answer"):
        run(space, tmp_path / "run", server.url)

    # The journal is whole: the run goes on without the database, and with it once it is back.
    rest = Counting()
    run(space, tmp_path / "run", "journal", rest)
    run(space, tmp_path / "undisturbed", "journal")
    assert contents(tmp_path / "run") == contents(tmp_path / "undisturbed")
    assert rest.calls == 105 - 30
    server.start()
    run(space, tmp_path / "run", server.url)
    assert 144 in studies(server).values()


def test_one_process_at_a_time_searches_in_a_study(
    server: Server, space: dict[str, Any], tmp_path: Path
) -> None:
    def second() -> None:
        with pytest.raises(UserError, match="another process is searching in the study"):
            run(space, tmp_path / "second", server.url)

    run(space, tmp_path / "first", server.url, Counting(20, second))
    run(space, tmp_path / "second", server.url)
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


def test_what_is_no_storage_is_told() -> None:
    check_storage("journal", has_folder=False)
    check_storage("postgresql://me@host/db", has_folder=True)
    with pytest.raises(UserError, match="allowed: journal, postgresql://"):
        check_storage("mysql://me:secret@host/db", has_folder=True)
    with pytest.raises(UserError, match="give --output-dir"):
        check_storage("postgresql://me@host/db", has_folder=False)


def test_passwords_are_not_shown() -> None:
    shown = "postgresql://me@host:5432/db"
    assert without_password("postgresql://me:se:cr@t@host:5432/db?sslmode=require") == shown
    assert without_password("--storage=postgresql://me:x@host:5432/db") == f"--storage={shown}"
    assert without_password("--output-dir") == "--output-dir"


def answers(port: int, path: str) -> Any:
    deadline_s = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
                return json.loads(reply.read())
        except OSError:
            assert time.monotonic() < deadline_s, "the dashboard does not start"
            time.sleep(0.2)


@pytest.mark.parametrize("kind", ["journal", "postgres"])
def test_optuna_dashboard_shows_the_study(
    kind: str, space: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed")
    storage = "journal"
    if kind == "postgres":
        storage = request.getfixturevalue("server").url
    run(space, tmp_path / "run", storage)
    watched = str(tmp_path / "run" / "study.journal")
    if kind == "postgres":
        watched = storage.replace("postgresql://", "postgresql+psycopg://")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = "from optuna_dashboard._cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", command, watched, "--port", str(port), "--host", "127.0.0.1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        listed = answers(port, "/api/studies")["study_summaries"]
        study = max(listed, key=lambda item: item["study_id"])
        detail = answers(port, f"/api/studies/{study['study_id']}?after=0")
    finally:
        process.kill()
        process.wait()
    assert len(detail["trials"]) == 144
    assert detail["objective_names"] == ["output_tok_s_per_gpu", "output_tok_s_per_user"]
