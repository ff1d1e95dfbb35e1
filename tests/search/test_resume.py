"""A search that is killed, interrupted or extended goes on where it stood."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from analytic_evaluator import analytic, screen

from dynosim.hardware_models.errors import UserError
from dynosim.search import parse_space, search
from dynosim.search.outcome import Outcome, Task
from dynosim.search.result import SearchResult
from dynosim.search.run_folder import RunFolder
from dynosim.search.space import SearchSpace
from dynosim.sim.deployment import Deployment

SCRIPT = """
import sys
from analytic_evaluator import noted, screen
from dynosim.search import load_space, search

if __name__ == "__main__":
    result = search(
        sys.argv[1], output_dir=sys.argv[2], workers=int(sys.argv[3]), resume=True,
        evaluator=noted, screen=screen,
    )
    sys.exit(130 if result.ending == "interrupted" else 0)
"""

SPACE = """
model: Qwen/Qwen3-32B
gpu: h200_sxm
backend: [vllm, sglang, trtllm]
tensor_parallel_size: [1, 2, 4, 8]
replicas: [1, 2, 3, 4, 6, 8]
max_num_seqs: {min: 8, max: 1024, log: true}
max_num_batched_tokens: {min: 512, max: 32768, log: true}
n_trials: 48
workload: {num_prompts: 20, request_rate: 2.0}
"""

COMPARED = ("frontier.csv", "trials.csv", "manifest.json")


@pytest.fixture
def space_file(tmp_path: Path) -> Path:
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    return path


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which every simulation of the subprocesses is noted; they hang after 25."""
    (tmp_path / "hold").touch()
    path = tmp_path / "calls.txt"
    monkeypatch.setenv("DYNOSIM_TEST_CALLS", str(path))
    return path


def start(space_file: Path, folder: Path, workers: int) -> subprocess.Popen[bytes]:
    script = space_file.with_name("run_search.py")
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, str(script), str(space_file), str(folder), str(workers)],
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
        preexec_fn=_hear_ctrl_c,
    )


def _hear_ctrl_c() -> None:
    """Undoes what a shell does to its background jobs: they, and all they start, ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for_trials(folder: Path, number: int) -> None:
    journal = folder / "study.journal"
    deadline_s = time.monotonic() + 60
    while not journal.exists() or journal.read_bytes().count(b'"metrics":{"') < number:
        assert time.monotonic() < deadline_s, "the search makes no progress"
        time.sleep(0.01)


def undisturbed(space_file: Path, folder: Path) -> SearchResult:
    return search(space_file, output_dir=folder, workers=1, evaluator=analytic, screen=screen)


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in COMPARED]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_search_resumes_to_the_same_frontier(
    space_file: Path, tmp_path: Path, calls: Path, workers: int
) -> None:
    folder = tmp_path / "killed"
    process = start(space_file, folder, workers)
    wait_for_trials(folder, 24)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=120)
    assert not (folder / "frontier.csv").exists()
    calls.with_name("hold").unlink()

    assert start(space_file, folder, workers).wait(timeout=120) == 0
    undisturbed(space_file, tmp_path / "undisturbed")
    assert contents(folder) == contents(tmp_path / "undisturbed")
    # Only what was in flight when the process died is simulated again (and what ended that moment).
    done = calls.read_text().splitlines()
    assert len(done) - len(set(done)) <= workers + 1


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_keeps_what_is_done(
    space_file: Path, tmp_path: Path, calls: Path, workers: int
) -> None:
    folder = tmp_path / "interrupted"
    process = start(space_file, folder, workers)
    wait_for_trials(folder, 24)
    os.killpg(process.pid, signal.SIGINT)  # As a terminal does: to the whole group.
    assert process.wait(timeout=120) == 130
    rows = (folder / "trials.csv").read_text().splitlines()
    assert len(rows) > 24
    assert (folder / "frontier.csv").exists()
    assert (folder / "frontier.png").exists()

    calls.with_name("hold").unlink()
    assert start(space_file, folder, workers).wait(timeout=120) == 0
    undisturbed(space_file, tmp_path / "undisturbed")
    assert contents(folder) == contents(tmp_path / "undisturbed")


def test_half_a_line_at_the_end_of_the_journal_is_dropped(space_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    search(space_file, output_dir=folder, n_trials=10, workers=1, evaluator=analytic, screen=screen)
    with (folder / "study.journal").open("ab") as file:
        file.write(b'{"op_code":4,"worker_id":"half a li')
    (folder / "study.journal.lock").touch()
    result = search(
        space_file,
        output_dir=folder,
        n_trials=12,
        resume=True,
        workers=1,
        evaluator=analytic,
        screen=screen,
    )
    assert result.simulated_here == 2


def test_a_finished_run_resumes_to_itself_without_a_simulation(
    space_file: Path, tmp_path: Path
) -> None:
    undisturbed(space_file, tmp_path)
    before = contents(tmp_path)
    result = search(
        space_file, output_dir=tmp_path, resume=True, workers=1, evaluator=analytic, screen=screen
    )
    assert result.simulated_here == 0
    assert contents(tmp_path) == before


@pytest.mark.parametrize("change", [{"seed": 3}, {"gpu": "h100_sxm"}, {"slos": {"tpot": 20}}])
def test_a_run_of_another_space_is_not_resumed(
    space_file: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    import yaml

    undisturbed(space_file, tmp_path)
    other = parse_space({**yaml.safe_load(SPACE), **change})
    with pytest.raises(UserError, match="holds the run of another space"):
        search(
            other, output_dir=tmp_path, resume=True, workers=1, evaluator=analytic, screen=screen
        )


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    with (
        RunFolder(tmp_path),
        pytest.raises(UserError, match="another process is writing"),
        RunFolder(tmp_path),
    ):
        pass


def test_an_interrupt_inside_a_simulation_ends_the_search_in_order(
    small_space: SearchSpace,
) -> None:
    def interrupted_at_tp2(deployment: Deployment, task: Task) -> Outcome:
        if deployment.tensor_parallel_size == 2:
            raise KeyboardInterrupt
        return analytic(deployment, task)

    result = search(small_space, workers=1, evaluator=interrupted_at_tp2, screen=screen)
    assert result.ending == "interrupted"
    assert result.frontier
    assert {t.deployment.tensor_parallel_size for t in result.trials if t.is_simulated} == {1}
