"""An evaluator with a known answer: importable by worker processes, milliseconds a call."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from dynosim.search.outcome import Outcome, Task
from dynosim.sim.deployment import Deployment


def analytic(deployment: Deployment, task: Task) -> Outcome:
    """Returns a smooth trade-off: batch buys throughput per GPU, TP buys speed per user."""
    batch = deployment.max_num_seqs or 256
    tokens = deployment.max_num_batched_tokens or 2048
    tp, replicas = deployment.tensor_parallel_size, deployment.replicas
    faster = {"vllm": 1.0, "sglang": 1.1, "trtllm": 1.2}[deployment.backend]
    step_s = (0.02 + 0.0001 * batch) / tp**0.7 / faster + 0.001 * tp
    speed = 1.0 / step_s
    per_gpu = batch * speed / tp * (1.0 - 0.02 * abs(replicas - 3)) * (1.0 - 500 / (tokens + 1000))
    metrics = {
        "output_tok_s_per_user": speed,
        "output_tok_s_per_gpu": per_gpu,
        "p99_ttft_ms": 1000.0 * tokens / 20000 + batch,
        "num_gpus": float(deployment.num_gpus),
        "usd_per_hour": 2.0 * deployment.num_gpus,
        "request_goodput": float("nan"),
    }
    return Outcome(metrics=metrics, instability=0.5 if batch == 8 else -0.5)


def fragile(deployment: Deployment, task: Task) -> Outcome:
    """As :func:`analytic`, but raises on TP 4 and kills its process on TP 8."""
    if deployment.tensor_parallel_size == 4:
        raise ZeroDivisionError("a defect at TP 4")
    if deployment.tensor_parallel_size == 8 and "DYNOSIM_TEST_KILL" in os.environ:
        os._exit(3)
    return analytic(deployment, task)


def noted(deployment: Deployment, task: Task) -> Outcome:
    """As :func:`analytic`; notes each call in a file, and after 25 calls hangs while told to.

    ``DYNOSIM_TEST_CALLS`` names the file; a file beside it called ``hold`` makes calls hang.
    """
    calls = Path(os.environ["DYNOSIM_TEST_CALLS"])
    with calls.open("a") as file:
        file.write(f"{deployment!r}\n")
    if calls.with_name("hold").exists() and len(calls.read_text().splitlines()) > 25:
        time.sleep(60)
    return analytic(deployment, task)


def slow_at_tp_2(deployment: Deployment, task: Task) -> Outcome:
    """As :func:`analytic`, but never ends on TP 2."""
    while deployment.tensor_parallel_size == 2:
        time.sleep(0.01)
    return analytic(deployment, task)


def screen(deployment: Deployment) -> Outcome | None:
    """Refuses more than 8 GPUs, and TP 8 as out of memory."""
    if deployment.num_gpus > 8:
        return Outcome(reason="over_gpu_budget", detail=f"{deployment.num_gpus} GPUs, budget 8")
    if deployment.tensor_parallel_size == 8 and deployment.max_num_seqs == 512:
        return Outcome(reason="oom", detail="needs 90.1 GiB of 79.2 GiB")
    return None


def unhurried(deployment: Deployment, task: Task) -> Outcome:
    """As :func:`noted`, in a twentieth of a second."""
    time.sleep(0.05)
    return noted(deployment, task)


def killed_once(deployment: Deployment, task: Task) -> Outcome:
    """As :func:`analytic`, but the tenth call anywhere is killed from outside.

    ``DYNOSIM_TEST_CALLS`` names a file that counts the calls.
    """
    calls = Path(os.environ["DYNOSIM_TEST_CALLS"])
    with calls.open("a") as file:
        file.write(".")
    if calls.stat().st_size == 10:
        os.kill(os.getpid(), signal.SIGKILL)
    return analytic(deployment, task)
