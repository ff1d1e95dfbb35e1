"""What goes wrong costs at most the trial that it hits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from analytic_evaluator import analytic, killed_once, screen, slow_at_tp_2

from dynosim.hardware_models.errors import UserError
from dynosim.search import parse_space, search
from dynosim.search.time_limit import time_limit

COMPARED = ("frontier.csv", "trials.csv", "manifest.json")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_candidate_that_takes_too_long_is_a_failed_trial_with_its_traceback(
    small_values: dict[str, Any], workers: int
) -> None:
    space = {**small_values, "backend": "vllm", "replicas": 1, "max_num_seqs": [32]}
    result = search(
        space, workers=workers, evaluator=slow_at_tp_2, screen=screen, candidate_timeout_s=0.2
    )
    assert [t.reason for t in result.trials] == [None, "error", None, None]
    assert result.trials[1].detail == "TimeoutError: took longer than 0.2 s"
    assert "slow_at_tp_2" in result.trials[1].traceback


def test_a_time_limit_holds_outside_the_main_thread_too() -> None:
    """As on the workers of a Dask cluster, whose main thread is theirs."""
    caught = []

    def work() -> None:
        try:
            with time_limit(0.05):
                while True:
                    pass
        except TimeoutError as error:
            caught.append(str(error))
        with time_limit(60.0):
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert caught == ["took longer than 0.05 s"]


@pytest.mark.parametrize("seconds", [0, -1.0])
def test_a_time_limit_is_positive(small_values: dict[str, Any], seconds: float) -> None:
    with pytest.raises(UserError, match="candidate_timeout: found"):
        search(small_values, candidate_timeout_s=seconds)


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in COMPARED}


def test_a_damaged_line_of_the_journal_costs_one_simulation(
    small_values: dict[str, Any], tmp_path: Path
) -> None:
    space = parse_space(small_values)
    options: dict[str, Any] = {"workers": 1, "evaluator": analytic, "screen": screen}
    search(space, output_dir=tmp_path / "whole", **options)
    right = files(tmp_path / "whole")
    journal = tmp_path / "whole" / "study.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[40] = b"\x00\xff" + lines[40][2:]
    journal.write_bytes(b"".join(lines))
    with pytest.warns(UserWarning, match=r"1 line\(s\) do not read"):
        again = search(space, output_dir=tmp_path / "whole", resume=True, **options)
    assert again.simulated_here <= 1
    assert files(tmp_path / "whole") == right
    assert journal.with_name("study.journal.damaged").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_killed_worker_costs_nothing_but_time(
    small_values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYNOSIM_TEST_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    space = parse_space(small_values)
    killed = search(
        space, output_dir=tmp_path / "killed", workers=2, evaluator=killed_once, screen=screen
    )
    assert not killed.reasons["error"]
    assert (tmp_path / "calls").stat().st_size > killed.simulated_here, "something ran twice"
    search(space, output_dir=tmp_path / "whole", workers=1, evaluator=analytic, screen=screen)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


FULL_DISK = """
import resource, signal, sys
from analytic_evaluator import analytic, screen, slow_at_tp_2
from dynosim.hardware_models.errors import UserError
from dynosim.search import load_space, search

# Beyond the limit writes fail as they do on a full disk.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    search(sys.argv[1], output_dir=sys.argv[2], workers=1, evaluator=analytic, screen=screen)
except UserError as error:
    sys.exit(str(error))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on a file's size")
def test_a_full_disk_ends_the_search_with_what_it_has(
    small_values: dict[str, Any], tmp_path: Path
) -> None:
    import yaml

    space = tmp_path / "space.yaml"
    space.write_text(yaml.safe_dump(small_values))
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(space), str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "study.journal, trial" in done.stderr
    assert "trials are safe: continue with --resume" in done.stderr
    options: dict[str, Any] = {"workers": 1, "evaluator": analytic, "screen": screen}
    resumed = search(space, output_dir=tmp_path / "run", resume=True, **options)
    whole = search(space, output_dir=tmp_path / "whole", **options)
    assert files(tmp_path / "run") == files(tmp_path / "whole")
    assert 0 < resumed.simulated_here < whole.simulated_here
