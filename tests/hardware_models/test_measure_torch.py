"""The ops run through PyTorch on this machine's CPU, and the command from end to end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from dynosim.cli import run
from dynosim.hardware_models.measure.case import Case, Skipped, Timing, Unsupported
from dynosim.hardware_models.measure.families import KEYS
from dynosim.hardware_models.measure.grid import OPS, families, plan, read_grid
from dynosim.hardware_models.measure.lab import Lab
from dynosim.hardware_models.measure.ledger import Ledger
from dynosim.hardware_models.measure.ops import nccl
from dynosim.hardware_models.measure.session import Limits, measure
from dynosim.hardware_models.measure.timing import Rules
from dynosim.hardware_models.measure.torch_bench import TorchBench
from dynosim.hardware_models.registry import find_module

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'dynosim[measure]'"
)

QUICK = Limits(budget_s=60.0, rules=Rules(warm_up=0, least=1, most=1))

HEADS = {
    "attn_dtype": "float32",
    "kv_cache_dtype": "float32",
    "head_dim": 64,
    "window_size": 0,
    "num_key_value_heads": 2,
    "num_heads": 4,
}
SMALLEST = {
    "gemm": {"gemm_dtype": "float32", "n": 64, "k": 32, "m": 2},
    "context_attention": HEADS | {"batch_size": 2, "isl": 16},
    "generation_attention": HEADS | {"batch_size": 3, "kv_tokens": 32},
    "batch_attention": HEADS
    | {"chunk_tokens": 8, "prefix_tokens": 16, "num_decode": 2, "kv_tokens": 4},
    "elementwise": {"bytes_per_token": 64, "num_tokens": 4},
    "fused": {"op": "rms_norm", "fused_dtype": "float32", "width": 64, "num_tokens": 2},
    "copy": {"op": "copy", "bytes": 4096},
    "launch": {"launch": "eager", "num_kernels": 3},
    "nccl": {"op": "all_reduce", "nccl_dtype": "half", "num_gpus": 2, "message_bytes": 1024},
}


@pytest.fixture(scope="module")
def bench() -> TorchBench:
    return TorchBench("cpu", wide="float32")


def test_every_op_is_tried_here() -> None:
    assert set(SMALLEST) == set(families())


@pytest.mark.parametrize("family", sorted(set(SMALLEST) - {"nccl"}))
def test_every_op_runs_on_a_cpu(family: str, bench: TorchBench) -> None:
    case = Case.of(family, SMALLEST[family])
    assert case.values == tuple(SMALLEST[family][key] for key in KEYS[family])
    kernels = bench.kernels(case)
    assert kernels
    assert all(kernel.sample() > 0 for kernel in kernels)


@pytest.mark.parametrize(
    ("family", "changed", "reason"),
    [
        ("gemm", {"gemm_dtype": "fp8"}, "8-bit floats are not measured on a CPU"),
        ("gemm", {"gemm_dtype": "nvfp4"}, "no PyTorch dtype for nvfp4"),
        ("gemm", {"n": 1 << 20, "k": 1 << 20}, "GiB are free"),
        ("context_attention", {"kv_cache_dtype": "fp8"}, "no attention over an 8-bit cache"),
        ("copy", {"op": "host_to_device"}, "a CPU has no link to a host"),
        ("launch", {"launch": "graph"}, "a CPU has no CUDA graphs"),
        ("nccl", {}, "needs 2 GPUs"),
        ("nccl", {"op": "all_gather"}, "only the all-reduce"),
    ],
)
def test_what_a_cpu_cannot_do_is_said(
    family: str, changed: dict[str, object], reason: str, bench: TorchBench
) -> None:
    with pytest.raises(Unsupported, match=reason):
        bench.kernels(Case.of(family, SMALLEST[family] | changed))


def test_weights_rotate_until_the_cache_cannot_hold_them(bench: TorchBench) -> None:
    lab = bench.lab
    assert lab.copies(lab.cache_bytes) == 2
    assert lab.copies(4 * lab.cache_bytes) == 1
    assert lab.copies(1) == 64


def test_a_chunk_behind_a_prefix_sees_the_prefix_and_itself(bench: TorchBench) -> None:
    """The mask's lower right corner is causal; a window hides what is too far back."""
    from dynosim.hardware_models.measure.ops._attention import Heads, _mask

    full = _mask(bench.lab, Heads(1, 1, 64, "float32"), 2, 4).int().tolist()
    assert full == [[1, 1, 1, 0], [1, 1, 1, 1]]
    windowed = _mask(bench.lab, Heads(1, 1, 64, "float32", window=2), 2, 4).int().tolist()
    assert windowed == [[0, 1, 1, 0], [0, 0, 1, 1]]


@dataclass(frozen=True, eq=False)
class MetaGpu(Lab):
    """A GPU of shapes without numbers: PyTorch checks the arguments and runs nothing."""

    on_gpu = True
    properties = SimpleNamespace(major=9, minor=0, L2_cache_size=50 * 2**20)

    def free_bytes(self) -> int:
        return 80 * 2**30


BF16 = {"attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("family", "changed", "kernels"),
    [
        ("gemm", {"gemm_dtype": "bfloat16"}, ["linear"]),
        ("gemm", {"gemm_dtype": "fp8"}, ["scaled_mm"]),
        ("context_attention", BF16, ["flash", "cudnn"]),
        ("context_attention", BF16 | {"window_size": 8}, ["flash"]),
        ("generation_attention", BF16, ["flash", "cudnn"]),
        ("batch_attention", BF16, ["flash"]),
        ("elementwise", {}, ["add"]),
        ("fused", {"op": "silu_and_mul", "fused_dtype": "bfloat16"}, ["silu_and_mul"]),
    ],
)
def test_what_a_gpu_would_run_has_the_arguments_that_pytorch_takes(
    family: str, changed: dict[str, object], kernels: list[str]
) -> None:
    lab = MetaGpu(torch, torch.device("meta"))
    build = find_module(OPS, "op", family).build
    built = build(lab, Case.of(family, SMALLEST[family] | changed).key)
    assert [calls.name for calls in built] == kernels
    for calls in built:
        if calls.name != "cudnn":
            calls.calls[0]()


def test_processes_reduce_together() -> None:
    """The same code as on GPUs, over gloo: every process adds, the slowest is what counts."""
    group = nccl.Group.start(2, "gloo")
    try:
        assert group.seconds(4096) > 0
    finally:
        group.stop()
    with pytest.raises(RuntimeError, match="ended"):
        group.seconds(4096)


def test_a_measurement_ends_with_every_shape_timed_or_said_why(
    tmp_path: Path, bench: TorchBench
) -> None:
    cases = plan(read_grid("small"), ops=["elementwise", "launch"])
    ledger = Ledger.open(tmp_path / "ledger.jsonl", bench.origin())
    summary = measure(cases, bench, ledger, QUICK, now=time.perf_counter)
    assert not summary.unreached
    timed = sum(isinstance(outcome, Timing) for outcome in ledger.outcomes.values())
    skipped = sum(isinstance(outcome, Skipped) for outcome in ledger.outcomes.values())
    assert (timed + skipped, skipped) == (len(cases), summary.skipped)
    assert summary.tried == len(cases)
    assert timed > 0


def test_the_command_measures_resumes_and_says_how_to_use_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "tables")
    words = ["calibrate", "measure", "--device", "cpu", "--ops", "launch", "--out", out]
    assert run(words) == 0
    printed = capsys.readouterr()
    assert "Not measured: 2 of launch, a CPU has no CUDA graphs" in printed.out
    assert "4 shapes tried" in printed.err
    assert run(words) == 0
    assert "0 shapes tried" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "measure", "--device", "tpu"]) == 2
    assert "allowed: auto, cpu, cuda or cuda:N" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert run(["calibrate", "measure", "--device", "cuda"]) == 2
        assert "sees no GPU" in capsys.readouterr().err
