"""The executor on a Dask cluster, started for real: a local one, and a scheduler with two workers.

Only where the extra 'dask' is installed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from analytic_evaluator import analytic, screen

from dynosim.hardware_models.errors import UserError
from dynosim.search import search
from dynosim.search.placement import check_executor

SPACE = """
model: Qwen/Qwen3-32B
gpu: h200_sxm
backend: [vllm, sglang, trtllm]
tensor_parallel_size: [1, 2, 4, 8]
replicas: [1, 2, 3, 4, 6, 8]
max_num_seqs: {min: 8, max: 1024, log: true}
n_trials: 80
workload: {num_prompts: 20, request_rate: 2.0}
"""

SCRIPT = """
import sys
from analytic_evaluator import screen, unhurried
from dynosim.hardware_models.errors import UserError
from dynosim.search import search

if __name__ == "__main__":
    space, folder, executor, address = sys.argv[1:]
    try:
        result = search(
            space, output_dir=folder, workers=2, executor=executor, dask_scheduler=address or None,
            resume=True, evaluator=unhurried, screen=screen,
        )
        sys.exit(130 if result.ending == "interrupted" else 0)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
"""

COMPARED = ("frontier.csv", "trials.csv", "manifest.json", "report.html")


@pytest.fixture
def space_file(tmp_path: Path) -> Path:
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    return path


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which every simulation is noted."""
    path = tmp_path / "calls.txt"
    monkeypatch.setenv("DYNOSIM_TEST_CALLS", str(path))
    return path


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended with the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    return {**os.environ, "PYTHONPATH": path}


def dask(*arguments: str) -> subprocess.Popen[bytes]:
    pytest.importorskip("distributed", reason="the extra 'dask' is not installed")
    command = [sys.executable, "-m", "dask", *arguments]
    return subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)


def start(
    space_file: Path, folder: Path, address: str = "", executor: str = "dask"
) -> subprocess.Popen[bytes]:
    script = space_file.with_name("run_search.py")
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(space_file), str(folder), executor, address]
    return subprocess.Popen(
        command, env=environment(), start_new_session=True, stderr=subprocess.PIPE
    )


def cluster(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> tuple[str, subprocess.Popen[bytes], list[subprocess.Popen[bytes]]]:
    """Returns address, scheduler and two workers, started as a user would."""
    file = tmp_path / "scheduler.json"
    common = ("--scheduler-file", str(file))
    quiet = ("--no-dashboard",)
    scheduler = dask("scheduler", "--port", "0", "--host", "127.0.0.1", *common, *quiet)
    processes.append(scheduler)
    workers = [
        dask("worker", *common, *quiet, "--nthreads", "1", "--no-nanny", "--local-directory",
             str(tmp_path / f"scratch{i}"))
        for i in range(2)
    ]  # fmt: skip
    processes.extend(workers)
    deadline_s = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline_s, "the scheduler does not start"
        time.sleep(0.05)
    import json

    return json.loads(file.read_text())["address"], scheduler, workers


def wait_for_calls(calls: Path, number: int) -> None:
    deadline_s = time.monotonic() + 90
    while not calls.exists() or len(calls.read_text().splitlines()) < number:
        assert time.monotonic() < deadline_s, "the search makes no progress"
        time.sleep(0.02)


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in COMPARED]


@pytest.fixture
def undisturbed(space_file: Path, tmp_path: Path) -> list[bytes]:
    folder = tmp_path / "serial"
    search(space_file, output_dir=folder, workers=1, evaluator=analytic, screen=screen)
    return contents(folder)


def test_a_local_cluster_gives_the_same_bytes_as_one_process(
    space_file: Path, tmp_path: Path, calls: Path, undisturbed: list[bytes]
) -> None:
    pytest.importorskip("distributed", reason="the extra 'dask' is not installed")
    process = start(space_file, tmp_path / "dask")
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors.decode()
    assert contents(tmp_path / "dask") == undisturbed
    assert len(calls.read_text().splitlines()) == 80


def test_a_killed_worker_costs_no_finished_trial(
    space_file: Path,
    tmp_path: Path,
    calls: Path,
    undisturbed: list[bytes],
    processes: list[subprocess.Popen[bytes]],
) -> None:
    address, _, workers = cluster(tmp_path, processes)
    process = start(space_file, tmp_path / "run", address)
    wait_for_calls(calls, 30)
    workers[0].send_signal(signal.SIGKILL)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors.decode()
    assert contents(tmp_path / "run") == undisturbed
    done = calls.read_text().splitlines()
    # What the dead worker was at, and had ended but not handed over, is simulated again.
    assert len(done) - len(set(done)) <= 4


def test_a_lost_scheduler_ends_the_search_and_the_run_goes_on_without_it(
    space_file: Path,
    tmp_path: Path,
    calls: Path,
    undisturbed: list[bytes],
    processes: list[subprocess.Popen[bytes]],
) -> None:
    address, scheduler, _ = cluster(tmp_path, processes)
    process = start(space_file, tmp_path / "run", address)
    wait_for_calls(calls, 40)
    scheduler.kill()
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 2, errors.decode()
    assert "the Dask scheduler is gone" in errors.decode()
    assert "continue with --resume" in errors.decode()
    finished = (tmp_path / "run" / "study.journal").read_bytes().count(b'"metrics":{"')
    assert finished >= 8

    before = len(calls.read_text().splitlines())
    resumed = start(space_file, tmp_path / "run", executor="process")
    _, errors = resumed.communicate(timeout=180)
    assert resumed.returncode == 0, errors.decode()
    assert contents(tmp_path / "run") == undisturbed
    assert len(calls.read_text().splitlines()) - before == 80 - finished


def test_ctrl_c_keeps_what_is_done(
    space_file: Path, tmp_path: Path, calls: Path, undisturbed: list[bytes]
) -> None:
    pytest.importorskip("distributed", reason="the extra 'dask' is not installed")
    process = start(space_file, tmp_path / "run")
    wait_for_calls(calls, 30)
    os.killpg(process.pid, signal.SIGINT)  # As a terminal does: to the whole group.
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 130, errors.decode()
    assert "Traceback" not in errors.decode()
    assert len((tmp_path / "run" / "trials.csv").read_text().splitlines()) > 20
    resumed = start(space_file, tmp_path / "run")
    _, errors = resumed.communicate(timeout=180)
    assert resumed.returncode == 0, errors.decode()
    assert contents(tmp_path / "run") == undisturbed


def test_an_address_where_nobody_answers_is_an_error(space_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra 'dask' is not installed")
    process = start(space_file, tmp_path / "run", "tcp://127.0.0.1:9")
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 2
    assert "dask_scheduler: tcp://127.0.0.1:9: no Dask scheduler" in errors.decode()


def test_a_scheduler_needs_its_executor() -> None:
    check_executor("dask", "tcp://host:8786")
    with pytest.raises(UserError, match="only the executor dask has a scheduler"):
        check_executor("process", "tcp://host:8786")
    with pytest.raises(UserError, match="allowed: process, dask"):
        check_executor("ray", None)
