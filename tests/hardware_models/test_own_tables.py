"""A folder of tables that the user measured: what it may hold, and that it goes first."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.hardware_models.timing.chain import timing_source
from dynosim.hardware_models.timing.columns import column
from dynosim.hardware_models.timing.ops import Elementwise
from dynosim.hardware_models.timing.own_tables import own_table
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.columns import Workload

HEADER = "gpu: H100\nbackend: vllm\nversion: 0.19.0\ndevice: NVIDIA H100 80GB HBM3\nsource: me\n"
GEMM = "gemm_dtype,n,k,m,latency_us\n"


def folder(at: Path, header: str = HEADER, **files: str) -> str:
    at.joinpath("tables.yaml").write_text(header)
    for family, text in files.items():
        at.joinpath(f"{family}.csv").write_text(text)
    return str(at)


def engine(tables: str | None, **more: object) -> EngineArgs:
    """An engine on own tables, at the times of launches that the cards say."""
    args: dict[str, Any] = {"model": "meta-llama/Llama-3.1-8B", "gpu": "h100"}
    return EngineArgs(**args, kernel_tables=tables, calibration="none", **more)  # type: ignore[arg-type]


def test_rows_come_sorted_by_the_keys_in_any_order_of_columns(tmp_path: Path) -> None:
    text = "latency_us,m,n,k,gemm_dtype\n20,2,4096,4096,bfloat16\n10,1,4096,4096,bfloat16\n"
    table = own_table(folder(tmp_path, gemm=text), "gemm")
    assert table.keys == ("gemm_dtype", "n", "k", "m")
    assert table.column("m").tolist() == [1, 2]
    assert table.latency_s == pytest.approx([10e-6, 20e-6])
    assert (table.gpu, table.backend, table.version) == ("h100_sxm", "vllm", "0.19.0")


def test_a_file_may_be_compressed(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "gemm.csv.gz", "wt") as file:
        file.write(GEMM + "bfloat16,8,8,1,3\n")
    assert own_table(folder(tmp_path), "gemm").latency_s == pytest.approx([3e-6])


@pytest.mark.parametrize(
    ("header", "files", "message"),
    [
        ("gpu: H100\n", {}, "`backend` is missing"),
        (HEADER + "versoin: 1\n", {}, "unknown key 'versoin'"),
        (HEADER.replace("H100\n", "H1000\n", 1), {}, "unknown gpu 'H1000'"),
        (HEADER, {"gem": GEMM}, "unknown op family 'gem'"),
        (HEADER, {"gemm": "n,k,m,latency_us\n"}, "gemm.csv:1: columns n, k, m, latency_us"),
        (HEADER, {"gemm": GEMM}, "no rows"),
        (HEADER, {"gemm": GEMM + "bfloat16,8,8,1\n"}, "gemm.csv:2: 4 cells, not 5"),
        (HEADER, {"gemm": GEMM + "bfloat16,8,8,1,3\nbfloat16,8,x,1,3\n"}, "gemm.csv:3: `k` is 'x'"),
        (HEADER, {"gemm": GEMM + "bfloat16,8,8,1,0\n"}, "gemm.csv:2: `latency_us` is 0"),
        (
            HEADER,
            {"gemm": GEMM + "bfloat16,8,8,1,3\nbfloat16,8,8,2,4\nbfloat16,8,8,1,5\n"},
            "gemm.csv:4: the shape of line 2 again",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, header: str, files: dict[str, str], message: str
) -> None:
    name = folder(tmp_path, header, **files)
    with pytest.raises(UserError) as caught:
        own_table(name, "gemm")
    assert message in str(caught.value)


def test_tables_of_another_gpu_are_refused(tmp_path: Path) -> None:
    name = folder(tmp_path, HEADER.replace("H100\n", "H200\n", 1))
    with pytest.raises(UserError, match="measured on h200_sxm, but the engine runs on h100_sxm"):
        resolve_engine(engine(name))


def test_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"kernel_tables.*no tables\.yaml"):
        resolve_engine(engine(str(tmp_path / "none")))


def test_own_products_go_first_where_their_shape_is_near(tmp_path: Path) -> None:
    text = GEMM + "bfloat16,4096,4096,1,1000\nbfloat16,4096,4096,64,1000\n"
    gpu = resolve_engine(engine(folder(tmp_path, gemm=text))).gpu
    source, one = timing_source(gpu, "vllm"), np.ones(1)
    priced = source.gemm_s(one, 4096, 4096, "bfloat16")
    assert priced.value == pytest.approx([1e-3])
    assert priced.source.source == "measured"
    # Another backend's engine takes them too, and says so.
    assert timing_source(gpu, "sglang").gemm_s(one, 4096, 4096, "bfloat16").source.source == (
        "transferred"
    )
    shipped = timing_source(resolve_engine(engine(None)).gpu, "vllm")
    for n, k, dtype in ((28672, 4096, "bfloat16"), (4096, 4096, "fp8")):
        own, other = (s.gemm_s(one, n, k, dtype).value for s in (source, shipped))
        assert own == pytest.approx(other)


def test_own_memory_bound_kernels_go_first(tmp_path: Path) -> None:
    text = "bytes_per_token,num_tokens,latency_us\n32768,1,7\n32768,100,9\n"
    gpu = resolve_engine(engine(folder(tmp_path, elementwise=text))).gpu
    norm = column(gpu, "vllm", Elementwise(2, 32768.0), 1, 128)
    assert norm.value[[0, 99]] == pytest.approx([14e-6, 18e-6])
    assert norm.source.source == "measured"
    far = column(gpu, "vllm", Elementwise(1, 1000.0), 1, 128)
    assert far.source.source == "roofline"


BATCH = "attn_dtype,kv_cache_dtype,head_dim,window_size,num_key_value_heads,num_heads,"
BATCH += "chunk_tokens,prefix_tokens,num_decode,kv_tokens,latency_us\n"
HEADS = "bfloat16,bfloat16,128,0,8,32"


def attention_us(chunk: int, prefix: int, decodes: int, context: int) -> float:
    """A made-up kernel: 10 us, pairs at 1 ns, 1 us a sequence and 10 ns a token of context."""
    pairs = chunk * (prefix + chunk / 2)
    decode = decodes * (1.0 + 0.01 * context) * (1.0 + (chunk > 0))
    return 10.0 + 1e-3 * pairs + decode


def batches() -> str:
    lines = [BATCH]
    for chunk in (0, 64, 256, 1024):
        for prefix in (0, 1024, 4096) if chunk else (0,):
            for decodes in (0, 16, 64):
                for context in (512, 2048) if decodes else (0,):
                    if chunk or decodes:
                        us = attention_us(chunk, prefix, decodes, context)
                        lines.append(f"{HEADS},{chunk},{prefix},{decodes},{context},{us}\n")
    return "".join(lines)


def test_batches_measured_whole_price_prefill_decode_and_both(tmp_path: Path) -> None:
    timer = StepTimer.compile(resolve_engine(engine(folder(tmp_path, batch_attention=batches()))))
    layers, us = 32, 1e6
    # Between knots of the chunk the pairs are exact; all chunks of a step share one launch.
    chunk_us = us * timer.prefill_attention_s(512, 2048) / layers
    launch_us = attention_us(64, 0, 0, 0)
    assert chunk_us == pytest.approx(attention_us(512, 2048, 0, 0) - launch_us, rel=1e-3)
    decode_s = timer.decode_line(16, 16 * 512)[0]
    twice_s = timer.decode_line(16, 16 * 1024)[0]
    assert us * (twice_s - decode_s) / layers == pytest.approx(16 * 0.01 * 512, rel=1e-6)
    alone_s = timer.step_s(256 + 16, 1, timer.prefill_attention_s(256, 1024), 0, 0)
    mixed_s = timer.step_s(256 + 16, 1, timer.prefill_attention_s(256, 1024), 16, 16 * 1024)
    added_us = us * (mixed_s - alone_s) / layers
    assert added_us == pytest.approx(16 * (1.0 + 0.01 * 1024) * 2, rel=1e-3)
    assert {s.source for s in timer.sources if "attention" in s.name} == {"measured"}


def test_batches_of_another_shape_leave_attention_to_the_shipped_tables(tmp_path: Path) -> None:
    name = folder(tmp_path, batch_attention=batches())
    args = engine(name, tensor_parallel_size=2)
    own, shipped = (
        StepTimer.compile(resolve_engine(a)) for a in (args, engine(None, tensor_parallel_size=2))
    )
    assert own.step_s(300, 1, 1e-3, 44, 4096) == shipped.step_s(300, 1, 1e-3, 44, 4096)


UNEVEN = "attn_dtype,kv_cache_dtype,head_dim,window_size,num_key_value_heads,num_heads,"
UNEVEN += "num_decode,mean_tokens,longest_tokens,latency_us\n"


def uneven(at: Path) -> str:
    """16 and 64 sequences that take 5 and 20 us longer, the longest 1,000 tokens over the mean."""
    lines = [UNEVEN]
    for decodes, longer_us in ((16, 5.0), (64, 20.0)):
        us = attention_us(0, 0, decodes, 1024) + longer_us
        lines.append(f"{HEADS},{decodes},1024,2024,{us}\n")
    return folder(at, batch_attention=batches(), uneven_decode="".join(lines))


def test_unequal_contexts_add_to_decode_by_what_the_longest_has_beyond_the_mean(
    tmp_path: Path,
) -> None:
    timer = StepTimer.compile(resolve_engine(engine(uneven(tmp_path))))
    assert timer.uneven_s is not None
    layers = 32
    for decodes, us in ((1, 0.0), (8, 5.0), (16, 5.0), (40, 12.5), (64, 20.0), (200, 20.0)):
        assert timer.uneven_s[decodes] == pytest.approx(layers * us * 1e-9), decodes
    assert "uneven decode" in {s.name for s in timer.sources}


def test_a_leap_over_unequal_contexts_is_its_steps(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 40
    load = Workload(
        name="uneven",
        arrival_s=np.sort(rng.uniform(0.0, 2.0, n)),
        input_tokens=rng.integers(16, 3000, n),
        output_tokens=rng.integers(2, 300, n),
        prefix_ids=np.zeros(0, dtype=np.int64),
        prefix_offsets=np.zeros(n + 1, dtype=np.int64),
    )
    deployment = Deployment(
        model="meta-llama/Llama-3.1-8B", gpu="h100", kernel_tables=uneven(tmp_path)
    )
    leaps, steps = (simulate(deployment, load, leap=leap).result for leap in (True, False))
    assert leaps.finish_s == pytest.approx(steps.finish_s, rel=1e-9)
    even = simulate(replace(deployment, kernel_tables=None), load).result
    assert not np.allclose(even.finish_s, leaps.finish_s)
