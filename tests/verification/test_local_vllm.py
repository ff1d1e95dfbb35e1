"""vLLM as a subprocess: started with the candidate's flags, heard, stopped, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.planning.exports.base import Candidate
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.verification.load.limits import Limits
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.subprocess_group import running
from dynosim.verification.target import TargetOptions
from dynosim.verification.targets import local_vllm, url
from dynosim.verification.vllm_log import facts_of

FAKE = (sys.executable, str(Path(__file__).parent / "fake_vllm.py"))
PLAN = LoadPlan(
    prompts=([1, 2, 3], [4, 5, 6], [7, 8, 9]),
    output_tokens=(2, 5, 5),
    send_s=None,
    max_concurrency=2,
    warmup=1,
)
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sessions are POSIX")


def candidate(**fields: object) -> Candidate:
    deployment = Deployment(model="Qwen/Qwen3-8B", gpu="h100", **fields)  # type: ignore[arg-type]
    return Candidate(
        deployment=deployment,
        engine=resolve_engine(deployment),
        workload=WorkloadSpec(),
        goodput_ms={},
        seed=0,
    )


@pytest.fixture
def options(tmp_path: Path) -> TargetOptions:
    return TargetOptions(folder=tmp_path / "logs", command=FAKE, start_timeout_s=30.0)


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the load generator be late: the tests' machine may be busy, and nothing is timed."""
    monkeypatch.setattr(url, "Limits", partial(Limits, max_lag_share=1e3))


@pytest.fixture
def pids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the ids of what the fake started."""
    monkeypatch.setenv("FAKE_VLLM_PIDS", str(tmp_path / "pids"))
    return tmp_path / "pids"


def assert_nobody_is_left(pids: Path) -> None:
    ids = [int(word) for word in pids.read_text(encoding="utf-8").split()]
    assert len(ids) >= 2
    for number in ids:
        assert not is_running(number), f"process {number} is left over"


def is_running(number: int) -> bool:
    """Whether a process runs; one that waits for its parent to take note does not."""
    for _ in range(100):
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return False
        stat = Path(f"/proc/{number}/stat")
        if stat.exists() and ") Z " in stat.read_text(encoding="utf-8"):
            return False
        time.sleep(0.02)
    return True


def test_a_candidate_is_started_loaded_heard_and_stopped(
    options: TargetOptions, pids: Path
) -> None:
    with local_vllm.make(options).run(candidate(max_num_seqs=32)) as engine:
        seen = engine.measure(PLAN)
    assert [r.output_tokens for r in seen.requests] == [5, 5]
    assert {k: v for k, v in seen.facts.items() if k in ("kv_cache_tokens", "max_concurrency")} == {
        "kv_cache_tokens": 407_344.0,
        "max_concurrency": 9.94,
    }
    assert seen.facts["startup_compile_s"] == 22.31
    total_s = seen.facts["startup_total_s"]
    assert isinstance(total_s, float)
    assert total_s > 0
    log = (options.folder / "vllm.log").read_text(encoding="utf-8")
    assert "arguments: serve Qwen/Qwen3-8B --max-num-seqs 32 --host 127.0.0.1 --port" in log
    assert_nobody_is_left(pids)


def test_the_user_s_own_arguments_come_last(options: TargetOptions) -> None:
    own = TargetOptions(folder=options.folder, arguments=("--dtype", "float32"))
    words = local_vllm.command(candidate(), own, 8123)
    assert words[:3] == ["vllm", "serve", "Qwen/Qwen3-8B"]
    assert words[-6:] == ["--host", "127.0.0.1", "--port", "8123", "--dtype", "float32"]


def test_death_at_the_start_shows_the_end_of_the_log(
    options: TargetOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "dies")
    with (
        pytest.raises(UserError, match="ended with code 3 before it was healthy") as error,
        local_vllm.make(options).run(candidate()),
    ):
        pass
    assert "No available memory for the cache blocks" in str(error.value)
    assert str(options.folder / "vllm.log") in error.value.hint


def test_an_engine_that_never_becomes_healthy_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pids: Path
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "never")
    options = TargetOptions(folder=tmp_path, command=FAKE, start_timeout_s=2.0)
    with (
        pytest.raises(UserError, match="was not healthy within 2 s"),
        local_vllm.make(options).run(candidate()),
    ):
        pass
    assert_nobody_is_left(pids)


def test_death_under_load_shows_the_end_of_the_log(
    options: TargetOptions, monkeypatch: pytest.MonkeyPatch, pids: Path
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "dies_under_load")
    with (
        pytest.raises(UserError, match="out of memory"),
        local_vllm.make(options).run(candidate()) as engine,
    ):
        engine.measure(PLAN)
    assert_nobody_is_left(pids)


def test_a_program_that_is_not_there(options: TargetOptions, tmp_path: Path) -> None:
    missing = TargetOptions(folder=tmp_path, command=("no-such-vllm",))
    with (
        pytest.raises(UserError, match="no-such-vllm: cannot be started"),
        local_vllm.make(missing).run(candidate()),
    ):
        pass


@pytest.mark.parametrize(
    ("fields", "problem"),
    [({"replicas": 2}, "starts one replica"), ({"backend": "sglang"}, "does not run sglang")],
)
def test_candidates_that_it_cannot_run(
    options: TargetOptions, fields: dict[str, object], problem: str
) -> None:
    with (
        pytest.raises(UserError, match=problem),
        local_vllm.make(options).run(candidate(**fields)),
    ):
        pass


def test_who_does_not_stop_when_asked_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pids: Path
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "stubborn")
    argv = [*FAKE, "serve", "m", "--host", "127.0.0.1", "--port", "0"]
    with running(argv, tmp_path / "log", grace_s=0.2):
        while not pids.exists() or not pids.read_text(encoding="utf-8").strip():
            time.sleep(0.02)
    assert_nobody_is_left(pids)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_end_of_dynosim_leaves_anybody_behind(
    tmp_path: Path, pids: Path, number: signal.Signals
) -> None:
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from pathlib import Path\n"
        "from dynosim.verification.subprocess_group import running\n"
        "import time\n"
        f"argv = {[*FAKE, 'serve', 'm', '--host', '127.0.0.1', '--port', '0']!r}\n"
        f"with running(argv, Path({str(tmp_path / 'log')!r})):\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as process:
        while not pids.exists() or not pids.read_text(encoding="utf-8").strip():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        process.wait(20)
    assert_nobody_is_left(pids)


def test_the_log_of_a_cpu_and_of_several_ranks() -> None:
    cpu = (
        "CPU KV cache size: 65,536 tokens, Maximum concurrency for 2,048 tokens per request: 32.00x"
    )
    assert facts_of(cpu) == {"kv_cache_tokens": 65_536.0, "max_concurrency": 32.0}
    ranks = (
        "(Worker_TP0) Loading weights took 3.10 seconds\n"
        "(Worker_TP1) Loading weights took 4.25 seconds\n"
        "(EngineCore_DP0) GPU KV cache size: 1,000 tokens\n"
        "(EngineCore_DP1) GPU KV cache size: 990 tokens\n"
        "torch.compile takes 9.50 s in total\n"
    )
    assert facts_of(ranks) == {
        "startup_weights_s": 4.25,
        "kv_cache_tokens": 990.0,
        "startup_compile_s": 9.5,
    }
    assert facts_of("nothing of use") == {}
