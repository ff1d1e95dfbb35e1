"""An engine's steps become tables and overheads: recovered exactly where steps are what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.verification.fitted_tables import write_fitted
from dynosim.verification.step_fit import StepCosts, fit_steps
from dynosim.verification.stepped.engine import Work
from dynosim.verification.stepped.step_record import StepRecord

HEADER = "gpu: H100\nbackend: vllm\nversion: 0.24.0\ndevice: NVIDIA H100 80GB HBM3\nsource: me\n"
SITES = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096))
STEP_S, SAMPLED_S, LINEAR, ATTENTION = 3e-3, 50e-6, 1.25, 0.8


def tables(folder: Path) -> str:
    """Writes tables of Llama-3.1-8B's shapes, in which a step's parts grow unlike each other."""
    folder.joinpath("tables.yaml").write_text(HEADER)
    rows = [f"bfloat16,{n},{k},{m},{400 + m * n / 4096}" for n, k in SITES for m in (1, 64, 512)]
    text = "\n".join(["gemm_dtype,n,k,m,latency_us", *rows])
    folder.joinpath("gemm.csv").write_text(text + "\n")
    sizes = [(b, n) for b in (12288, 16384, 24576, 86016, 1539072) for n in (1, 64, 512)]
    lines = [f"{b},{n},{2 + b * n / 2e7}" for b, n in sizes]
    text = "\n".join(["bytes_per_token,num_tokens,latency_us", *lines])
    folder.joinpath("elementwise.csv").write_text(text + "\n")
    heads = "attn_dtype,kv_cache_dtype,head_dim,window_size,num_key_value_heads,num_heads"
    same = "bfloat16,bfloat16,128,0,8,32"
    prefill = [f"{same},1,{n},{5 + n * n / 500}" for n in (16, 128, 512, 2048)]
    decode = [f"{same},{b},{n},{5 + b * n / 40}" for b in (1, 8, 64) for n in (16, 512, 4096)]
    for name, axis, lines in (
        ("context_attention", "isl", prefill),
        ("generation_attention", "kv_tokens", decode),
    ):
        head = f"{heads},batch_size,{axis},latency_us"
        folder.joinpath(f"{name}.csv").write_text("\n".join([head, *lines]) + "\n")
    return str(folder)


@pytest.fixture
def engine(tmp_path: Path) -> ResolvedEngine:
    folder = tmp_path / "alone"
    folder.mkdir()
    return resolve_engine(arguments(kernel_tables=tables(folder), calibration="none"))


def arguments(**more: str) -> EngineArgs:
    return EngineArgs(
        model="meta-llama/Llama-3.1-8B",
        gpu="h100",
        max_num_seqs=64,
        max_num_batched_tokens=512,
        enforce_eager=True,
        async_scheduling=False,
        **more,  # type: ignore[arg-type]
    )


def steps(engine: ResolvedEngine, seed: int) -> list[StepRecord]:
    """Returns steps of all kinds whose costs are exactly of the form that is fitted."""
    random = np.random.default_rng(seed)
    costs = StepCosts.of(engine)
    found = []
    for _ in range(60):
        decodes = tuple(
            Work(i, 1, int(random.integers(20, 2000))) for i in range(random.integers(9))
        )
        chunk = Work(99, int(random.integers(8, 500)), int(random.integers(0, 1000)))
        chunks = () if decodes and random.random() < 0.5 else (chunk,)
        new = {work.request: 1 for work in (*decodes, *chunks)}
        step = StepRecord(start_s=0, cost_s=1, decodes=decodes, chunks=chunks, new_tokens=new)
        _, sampled, linear, attention = costs.parts([step])[0]
        cost_s = STEP_S + SAMPLED_S * sampled + LINEAR * linear + ATTENTION * attention
        found.append(replace(step, cost_s=cost_s))
    return found


def test_what_steps_are_made_of_is_found_again(engine: ResolvedEngine) -> None:
    fit = fit_steps(engine, {"a": steps(engine, 1), "b": steps(engine, 2)})
    assert fit.host_step_s == pytest.approx(STEP_S, rel=1e-3)
    assert fit.host_per_sequence_s == pytest.approx(SAMPLED_S, rel=1e-2)
    assert fit.linear_factor == pytest.approx(LINEAR, rel=1e-3)
    assert fit.attention_factor == pytest.approx(ATTENTION, rel=1e-2)
    assert fit.held_out == pytest.approx({"a": 0.0, "b": 0.0}, abs=1e-3)


def test_the_files_time_steps_as_they_were(engine: ResolvedEngine, tmp_path: Path) -> None:
    """What is written, read back as any command reads it, prices the fitted steps."""
    recorded = steps(engine, 1)
    fit = fit_steps(engine, {"a": recorded, "b": steps(engine, 2)})
    folder = tmp_path / "fitted"
    write_fitted(engine, fit, "an engine", folder)
    own = arguments(kernel_tables=str(folder), calibration=str(folder / "overheads.yaml"))
    timer = StepTimer.compile(resolve_engine(own))
    for step in recorded:
        prefill = sum(timer.prefill_attention_s(w.tokens, w.context_tokens) for w in step.chunks)
        sampled, context = len(step.new_tokens), step.decode_context_tokens
        seconds = timer.step_s(step.tokens, sampled, prefill, len(step.decodes), context)
        assert seconds == pytest.approx(step.cost_s, rel=0.01)


def test_the_tables_say_what_was_done_to_them(engine: ResolvedEngine, tmp_path: Path) -> None:
    fit = fit_steps(engine, {"a": steps(engine, 1), "b": steps(engine, 2)})
    write_fitted(engine, fit, "an engine", tmp_path / "fitted")
    header = (tmp_path / "fitted" / "tables.yaml").read_text()
    assert "products x 1.250, attention x 0.800, as in 120 steps of an engine" in header


def test_one_load_is_too_little(engine: ResolvedEngine) -> None:
    with pytest.raises(UserError, match=r"60 steps of 1 load\(s\) are too few"):
        fit_steps(engine, {"a": steps(engine, 1)})
