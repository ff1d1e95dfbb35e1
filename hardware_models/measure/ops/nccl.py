"""All-reduce over the GPUs of this machine, one process each, through torch.distributed."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynosim.hardware_models.measure.bench import Kernel
from dynosim.hardware_models.measure.case import Unsupported
from dynosim.hardware_models.measure.lab import Call, Lab, import_torch
from dynosim.hardware_models.measure.stopwatch import gpu_seconds

CALLS = 10
"""All-reduces in one sample."""

PATIENCE_S = 60.0
"""A group that answers nothing for this long is ended: a broken link hangs instead of failing."""

_groups: dict[int, Group] = {}


def build(lab: Lab, key: Mapping[str, Any]) -> list[Kernel]:
    """Returns the all-reduce of a message over a group of GPUs, which stays up for the next."""
    count, size = key["num_gpus"], key["message_bytes"]
    if key["op"] != "all_reduce" or key["nccl_dtype"] != "half":
        raise Unsupported("only the all-reduce of 16-bit elements is measured")
    found = lab.torch.cuda.device_count() if lab.on_gpu else 1
    if count > found:
        raise Unsupported(f"needs {count} GPUs, {found} are here")
    if count not in _groups:
        close()
        _groups[count] = Group.start(count, "nccl")
    return [Kernel("nccl", lambda: _groups[count].seconds(size))]


def close() -> None:
    """Ends the processes of all groups; one of another size would hold memory of its GPUs."""
    for group in _groups.values():
        group.stop()
    _groups.clear()


@dataclass(frozen=True, eq=False)
class Group:
    """Processes that run the same collectives, told by pipes what to run."""

    processes: tuple[Any, ...]
    pipes: tuple[Any, ...]
    folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def start(cls, count: int, library: str) -> Group:
        """Returns ``count`` processes joined by ``library`` (``nccl``, or ``gloo`` on CPUs)."""
        import multiprocessing

        context = multiprocessing.get_context("spawn")
        folder = tempfile.TemporaryDirectory()
        meeting = (Path(folder.name) / "meeting").as_uri()
        processes, pipes = [], []
        for rank in range(count):
            ours, theirs = context.Pipe()
            arguments = (theirs, rank, count, library, meeting)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            processes.append(process)
            pipes.append(ours)
        return cls(tuple(processes), tuple(pipes), folder)

    def seconds(self, message_bytes: int) -> float:
        """Returns the seconds of one all-reduce, those of the slowest process."""
        try:
            for pipe in self.pipes:
                pipe.send(message_bytes)
        except OSError:
            raise RuntimeError("the group has ended") from None
        return max(self._answer(pipe) for pipe in self.pipes)

    def _answer(self, pipe: Any) -> float:
        if not pipe.poll(PATIENCE_S):
            self.stop()
            raise RuntimeError(f"no answer from the group within {PATIENCE_S:.0f} s")
        try:
            answer = pipe.recv()
        except EOFError:
            raise RuntimeError("a process of the group ended") from None
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return float(answer)

    def stop(self) -> None:
        """Ends the processes."""
        for process in self.processes:
            process.terminate()
            process.join()
        self.folder.cleanup()


def _serve(pipe: Any, rank: int, count: int, library: str, meeting: str) -> None:
    """Runs one process of a group until its pipe closes."""
    torch = import_torch()
    distributed = torch.distributed
    on_gpu = library == "nccl"
    if on_gpu:
        torch.cuda.set_device(rank)
    distributed.init_process_group(library, init_method=meeting, rank=rank, world_size=count)
    device = f"cuda:{rank}" if on_gpu else "cpu"
    while True:
        try:
            message_bytes = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_all_reduce_s(torch, message_bytes, device))
        except RuntimeError as error:
            pipe.send(str(error))


def _all_reduce_s(torch: Any, message_bytes: int, device: str) -> float:
    message = torch.zeros(message_bytes // 2, dtype=torch.bfloat16, device=device)
    torch.distributed.all_reduce(message)
    torch.distributed.barrier()
    calls: list[Call] = [lambda: torch.distributed.all_reduce(message)] * CALLS
    if device != "cpu":
        return gpu_seconds(torch, calls) / CALLS
    import time

    begin = time.perf_counter()
    for call in calls:
        call()
    return (time.perf_counter() - begin) / CALLS
