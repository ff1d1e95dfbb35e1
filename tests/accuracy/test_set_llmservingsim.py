"""LLMServingSim's runs: what was deployed, when requests came, what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dynosim.accuracy.case import Case
from dynosim.accuracy.run import run_case
from dynosim.accuracy.sets import llmservingsim
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.columns import Workload


@pytest.fixture(scope="module")
def cases(shared_data: Path) -> list[Case]:
    return llmservingsim.read(shared_data)


def test_each_run_is_a_case(shared_data: Path, cases: list[Case]) -> None:
    assert [c.deployment.gpu for c in cases] == ["rtx_4090", "rtx_pro_6000_server"]
    assert llmservingsim.dropped(shared_data) == {}
    assert all((shared_data / source).is_file() for source in llmservingsim.SOURCES)


def test_flags_are_those_of_meta_json(cases: list[Case]) -> None:
    flags = cases[0].deployment
    assert (flags.model, flags.backend_version) == ("meta-llama/Llama-3.1-8B", "0.19.0")
    assert (flags.max_num_seqs, flags.max_num_batched_tokens) == (256, 2048)
    assert (flags.max_model_len, flags.num_gpu_blocks_override) == (32768, 2588)
    assert cases[1].deployment.num_gpu_blocks_override is None
    assert not flags.enforce_eager  # Only the op grids were measured eagerly.


def test_requests_come_when_the_engine_saw_them(cases: list[Case]) -> None:
    load = cases[1].workload
    assert isinstance(load, Workload)
    assert len(load) == 300
    assert load.arrival_s[:2] == pytest.approx([0.0, 479748.625554681 - 479748.340626232])
    assert (load.input_tokens[0], load.output_tokens[0]) == (2358, 531)
    assert load.prefix_block_tokens == 16
    assert np.diff(load.prefix_offsets)[0] == 2358 // 16


def test_statistics_agree_with_the_sources_own_summary(cases: list[Case]) -> None:
    wanted = {
        "mean_ttft_ms": 65456.6,
        "p99_ttft_ms": 137356.3,
        "mean_tpot_ms": 32.4,
        "mean_e2el_ms": 86578.3,
        "median_e2el_ms": 83413.3,
    }
    for name, value in wanted.items():
        assert cases[0].measured[name] == pytest.approx(value, rel=2e-3), name


def test_the_peers_own_prediction_stands_beside(shared_data: Path, cases: list[Case]) -> None:
    peer = llmservingsim.peers(shared_data)[cases[1].row]["LLMServingSim"]
    assert peer["mean_ttft_ms"] == 6815.7
    assert peer.keys() <= cases[1].measured.keys()


def test_own_op_grids_price_every_kernel(cases: list[Case]) -> None:
    outcome = run_case(cases[0])
    assert outcome.basis == "measured"
    # Its published bar: this run within 1.5 % of every mean.
    for name in ("mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms"):
        assert abs(outcome.error(name)) < 0.02, name


@pytest.mark.parametrize(
    ("model", "degree"),
    [("Qwen/Qwen3-32B", 2), ("Qwen/Qwen3-30B-A3B-Instruct-2507", 1)],
)
def test_grids_of_other_models_price_them_too(shared_data: Path, model: str, degree: int) -> None:
    grid = shared_data / "opgrids/RTXPRO6000" / model / f"bf16/tp{degree}"
    deployment = Deployment(
        model=model,
        gpu="rtx_pro_6000_server",
        max_num_batched_tokens=2048,
        tensor_parallel_size=degree,
    )
    own = replace(deployment, kernel_tables=llmservingsim.tables_of(grid, deployment))
    timer, shipped = (StepTimer.compile(resolve_engine(d)) for d in (own, deployment))
    # The choice of experts was not measured by itself.
    sources = {s.name: s.detail for s in reversed(timer.sources)}
    for name in ("elementwise", "prefill attention", "decode attention", "mixed attention"):
        assert "own tables" in sources[name]
    if "A3B" in model:
        assert "vllm 0.19.0" in sources["moe bfloat16"]
    # Another version's kernels on the same GPU: near, not equal.
    ours, theirs = (t.decode_line(64, 64 * 1200)[0] for t in (timer, shipped))
    assert ours == pytest.approx(theirs, rel=0.2)
    assert ours != theirs
