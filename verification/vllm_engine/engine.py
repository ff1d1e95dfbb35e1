"""vLLM's engine as a :class:`~..stepped.engine.StepEngine`, in another process and environment."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.verification.stepped.clocks import Reported
from dynosim.verification.stepped.engine import EngineStep, Work
from dynosim.verification.target import EngineFailed

WORKER = Path(__file__).resolve().parent / "worker.py"

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
"""The engine's core runs in the worker's own process, with one thread, and asks no hub."""

PROBE_S = 2.0e-3
"""Steps' costs are told in seconds of a processor on which the probe takes this long."""

WINDOW = 9
"""Probes whose median says how fast the processor is now."""

CLOCK = "process-cpu, probed"

STEP_TIMEOUT_S = 120.0
TAIL_LINES = 12


class PacedClock(Reported):
    """Steps' costs as the engine reports them, and how the processor's ``paces`` drifted."""

    def __init__(self, paces: list[float]) -> None:
        super().__init__(CLOCK)
        self._paces = paces

    def begin(self) -> None:
        """Starts to note the drift anew."""
        del self._paces[:-1]

    def facts(self) -> Mapping[str, float]:
        """Returns the probe's median, and its drift over the run.

        The drift is the 90th over the 10th percentile of the rolling medians, less one: a slow
        spell of some steps is what the clock is there to even out.
        """
        paces = sorted(self._paces or [PROBE_S])
        last = len(paces) - 1
        drift = paces[round(0.9 * last)] / paces[round(0.1 * last)] - 1.0
        return {"probe_s": median(paces), "probe_drift": drift}


class VllmEngine:
    """Speaks with :mod:`~.worker` over the pipes of ``process``, whose errors go to ``log``.

    The probe (:data:`~.worker.PROBE_ROWS`) is timed before every step; a step's cost is its
    processor time over the median of the last probes, times :data:`PROBE_S`. So runs of different
    processes and hours can be compared, whatever the machine's clock and caches did meanwhile.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log
        self._added: list[tuple[int, list[int], int]] = []
        self._probes: deque[float] = deque(maxlen=WINDOW)
        self._paces: list[float] = []
        self._facts: dict[str, float | str] = {}

    def start(self, words: Sequence[str], timeout_s: float) -> None:
        """Starts the engine with the words of a command line.

        EngineFailed where it says why it cannot be, or ends; UserError where it is not up within
        ``timeout_s``, or its Python has no vLLM.
        """
        answer = self._ask({"start": list(words), "threads": 1}, timeout_s)
        self._facts = dict(answer["facts"])

    def add(self, request_id: int, prompt_token_ids: Sequence[int], max_tokens: int) -> None:
        """Queues a request; it is handed over before the next step."""
        self._added.append((request_id, list(prompt_token_ids), max_tokens))

    def step(self) -> EngineStep:
        """Runs one step; EngineFailed where the engine ends, or fails, UserError where no answer
        comes within STEP_TIMEOUT_S."""
        if self._added:
            self._ask({"add": self._added}, STEP_TIMEOUT_S)
            self._added = []
        found = self._ask({"step": True}, STEP_TIMEOUT_S)
        self._probes.append(found["probe_s"])
        self._paces.append(median(self._probes))
        return EngineStep(
            work=tuple(Work(*work) for work in found["batch"]),
            new_tokens=dict(found["tokens"]),
            finished=tuple(found["finished"]),
            preempted=tuple(found["preempted"]),
            own_s=found["process_s"] * PROBE_S / self._paces[-1],
        )

    def forget(self) -> None:
        """Empties the prefix cache; AssertionError while a request is unfinished, otherwise raises
        as :meth:`step`."""
        if not self._ask({"forget": True}, STEP_TIMEOUT_S)["forgotten"]:
            raise AssertionError("requests are unfinished")

    def facts(self) -> Mapping[str, float | str]:
        """Returns what the engine settled on, e.g. ``kv_cache_tokens``; empty before it started."""
        return self._facts

    def clock(self) -> PacedClock:
        """Returns the clock of this engine's runs."""
        return PacedClock(self._paces)

    def _ask(self, order: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Returns the answer to an order; raises as :meth:`start` and :meth:`step`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None, "the worker's input is no pipe"
        assert stdout is not None, "the worker's output is no pipe"
        watchdog = threading.Timer(timeout_s, self._process.kill)
        watchdog.start()
        asked_s = time.monotonic()
        try:
            stdin.write(json.dumps(order, separators=(",", ":")).encode() + b"\n")
            stdin.flush()
            line = stdout.readline()
        except OSError:
            line = b""
        finally:
            watchdog.cancel()
        if not line and time.monotonic() - asked_s >= timeout_s:
            raise self._fault(UserError, f"vLLM did not answer within {timeout_s:g} s")
        if not line:
            raise self._fault(EngineFailed, "vLLM's process ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            # A Python without vLLM says nothing of the candidate.
            is_absent = answer["error"].startswith("ModuleNotFoundError")
            kind = UserError if is_absent else EngineFailed
            raise self._fault(kind, f"vLLM said {answer['error']}")
        return answer

    def _fault(self, kind: type[UserError], message: str) -> UserError:
        lines = self._log.read_bytes()[-65_536:].decode(errors="replace").splitlines()
        shown = "\n".join(f"  | {line}" for line in lines[-TAIL_LINES:])
        return kind(f"{message}\n{shown}", where="vllm-in-process", hint=f"log: {self._log}")
