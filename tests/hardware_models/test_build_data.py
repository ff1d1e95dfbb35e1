"""The table build: quality rules on hand-made rows, a made-up upstream, the real one if here."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dynosim.hardware_models.build_data import communication, quality
from dynosim.hardware_models.build_data.__main__ import main
from dynosim.hardware_models.build_data.families import FAMILIES, one_kernel_per_curve
from dynosim.hardware_models.build_data.rows import Rows, concatenate, shared_positions
from dynosim.hardware_models.build_data.source import open_upstream
from dynosim.hardware_models.build_data.system import GPUS, System, version_order
from dynosim.hardware_models.build_data.work import bound_s
from dynosim.hardware_models.timing.tables import OpTable, decode, load_table

H100 = System(
    gpu="h100_sxm",
    device="NVIDIA H100 80GB HBM3",
    memory_bytes_s=3.35e12,
    link_bytes_s=450e9,
    gpus_per_node=8,
    flop_s={"bfloat16": 989e12, "int8": 1978e12, "fp8": 1978e12},
)


def curve(*latencies_us: float) -> Rows:
    """Returns one GEMM curve over m = 1, 2, 4, ... (times in microseconds)."""
    count = len(latencies_us)
    columns: dict[str, Any] = {
        "gemm_dtype": np.full(count, "bfloat16"),
        "n": np.full(count, 4096),
        "k": np.full(count, 4096),
        "m": 2 ** np.arange(count),
    }
    return Rows(columns, np.array(latencies_us) * 1e-6)


def decode_attention(batch: int, kv_tokens: int, kv_heads: int, window: int, us: float) -> Rows:
    columns: dict[str, Any] = {
        "attn_dtype": np.array(["bfloat16"]),
        "kv_cache_dtype": np.array(["bfloat16"]),
        "head_dim": np.array([128]),
        "window_size": np.array([window]),
        "num_key_value_heads": np.array([kv_heads]),
        "num_heads": np.array([32]),
        "batch_size": np.array([batch]),
        "kv_tokens": np.array([kv_tokens]),
    }
    return Rows(columns, np.array([us]) * 1e-6)


# --- least work ----------------------------------------------------------------------------------


def test_a_square_gemm_is_bound_by_arithmetic() -> None:
    columns: dict[str, Any] = {
        "gemm_dtype": np.array(["bfloat16", "fp8"]),
        **{key: np.array([8192, 8192]) for key in ("n", "k", "m")},
    }
    bound = bound_s(Rows(columns, np.ones(2)), "gemm", H100)
    # 2 * 8192^3 = 1.0995e12 operations at 989 and 1978 TFLOP/s
    assert bound == pytest.approx([1.1117e-3, 0.5559e-3], rel=1e-4)


def test_decode_attention_is_bound_by_the_cache_it_reads_beyond_what_l2_can_hold() -> None:
    rows = decode_attention(batch=64, kv_tokens=8192, kv_heads=8, window=0, us=1)
    # 2 * 64 * 8192 * 8 * 128 * 2 bytes = 2 GiB, less 128 MiB, at 3.35 TB/s
    assert bound_s(rows, "generation_attention", H100) == pytest.approx([6.01e-4], rel=1e-3)


def test_grouped_heads_are_counted_once_and_a_window_limits_what_is_read() -> None:
    full = decode_attention(batch=64, kv_tokens=65536, kv_heads=8, window=0, us=1)
    window = decode_attention(batch=64, kv_tokens=65536, kv_heads=8, window=8192, us=1)
    same = decode_attention(batch=64, kv_tokens=8192, kv_heads=8, window=0, us=1)
    family = "generation_attention"
    assert bound_s(window, family, H100) == bound_s(same, family, H100)
    # 16 GiB less 128 MiB; 32 query heads share 8 cached heads
    expected = (16 * 2**30 - 2**27) / 3.35e12
    assert bound_s(full, family, H100) == pytest.approx([expected])


def test_what_the_cache_may_hold_counts_where_the_launch_is_judged() -> None:
    rows = decode_attention(batch=2, kv_tokens=8192, kv_heads=8, window=0, us=8)  # 64 MiB
    uncached = bound_s(rows, "generation_attention", H100, cached_bytes=0)
    assert uncached == pytest.approx([2**26 / 3.35e12])


def test_collectives_have_no_bound() -> None:
    assert bound_s(curve(1), "nccl", H100) is None


# --- rules ---------------------------------------------------------------------------------------


def test_rows_without_a_positive_finite_latency_are_unmeasured() -> None:
    rows = curve(5, 0, -1, np.nan, np.inf, 6)
    assert quality.unmeasured(rows).tolist() == [False, True, True, True, True, False]


def test_a_device_is_foreign_unless_its_name_begins_the_own_one() -> None:
    names = np.array(["NVIDIA H100 80GB HBM3", "NVIDIA H100", "NVIDIA H200", ""])
    foreign = quality.foreign_device(names, "NVIDIA H100 80GB HBM3")
    assert foreign.tolist() == [False, False, True, True]


def test_a_spike_stands_far_above_both_neighbours() -> None:
    assert quality.spikes(curve(5, 6, 60, 7, 8)).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize(
    "sound",
    [
        pytest.param((5, 5, 5, 60, 65), id="a step up"),
        pytest.param((60, 60, 60, 5, 5), id="a step down"),
        pytest.param((60, 5, 6, 7, 80), id="the ends of a curve"),
        pytest.param((5, 10, 20, 40, 80), id="growth"),
        pytest.param((5, 6, 14, 6, 7), id="noise"),
    ],
)
def test_what_is_no_spike(sound: tuple[float, ...]) -> None:
    assert not quality.spikes(curve(*sound)).any()


def test_a_spike_is_judged_on_its_own_curve() -> None:
    one, other = curve(5, 5), curve(60, 5)
    columns = {k: np.concatenate([one.columns[k], other.columns[k]]) for k in one.keys}
    columns["n"] = np.array([64, 64, 128, 128])
    rows = Rows(columns, np.concatenate([one.latency_s, other.latency_s]))
    assert not quality.spikes(rows).any()


def test_a_bump_of_few_rows_stands_above_what_is_on_both_sides() -> None:
    bumps = quality.bumps(curve(10, 17, 18, 17, 11, 12), width=3)
    assert bumps.tolist() == [False, True, True, True, False, False]


@pytest.mark.parametrize(
    "sound",
    [
        (10, 14, 14, 11),  # less than half as much again
        (10, 20, 21, 22, 20, 11),  # a longer stretch: another kernel
        (20, 10, 11, 12),  # begins high
        (10, 20, 21, 22),  # stays high
    ],
)
def test_what_is_no_bump(sound: tuple[float, ...]) -> None:
    assert not quality.bumps(curve(*sound), width=3).any()


def test_products_slower_than_with_every_other_backend_are_a_fault() -> None:
    slow, like = np.full(20, 1.6), np.full(20, 1.1)
    assert "1.6 times" in (quality.slower_than_all([slow, np.full(20, 1.7)]) or "")
    assert quality.slower_than_all([slow, like]) is None
    # One other backend is no witness, nor are few rows.
    assert quality.slower_than_all([slow]) is None
    assert quality.slower_than_all([slow, slow[:3]]) is None


def test_a_row_faster_than_the_memory_is_impossible() -> None:
    """The row that upstream's own notes admit: utilisation 14.6 of a full-attention decode."""
    sound = decode_attention(64, 8192, 8, 0, us=700)
    wrong = decode_attention(64, 8192, 8, 0, us=601 / 14.6)
    for rows, expected in ((sound, False), (wrong, True)):
        bound = bound_s(rows, "generation_attention", H100)
        assert bound is not None
        assert quality.impossible(rows, bound).tolist() == [expected]


def test_a_cache_that_fits_in_l2_may_be_read_faster_than_memory() -> None:
    rows = decode_attention(batch=2, kv_tokens=8192, kv_heads=8, window=0, us=8)  # 64 MiB
    bound = bound_s(rows, "generation_attention", H100)
    assert bound is not None
    assert not quality.impossible(rows, bound).any()


def test_a_group_with_many_impossible_rows_is_faulty() -> None:
    bound = np.full(100, 100e-6)
    latency_s = np.full(100, 120e-6)
    columns = {"m": np.arange(100)}
    latency_s[:4] = 50e-6
    assert quality.impossible_group(Rows(columns, latency_s), bound) is None
    latency_s[:10] = 50e-6
    reason = quality.impossible_group(Rows(columns, latency_s), bound)
    assert reason is not None
    assert "10 of 100 rows" in reason
    assert "up to 2.00 times" in reason


def test_a_group_of_small_shapes_cannot_be_judged_by_utilisation() -> None:
    rows = Rows({"m": np.arange(10)}, np.full(10, 1e-6))
    assert quality.impossible_group(rows, np.full(10, 9e-6)) is None


def test_the_launch_floor_is_the_median_of_shapes_without_work() -> None:
    bound = np.array([1e-6] * 8 + [1e-3] * 8)
    rows = Rows({"m": np.arange(16)}, np.array([3e-6] * 5 + [5e-6] * 3 + [2e-3] * 8))
    assert quality.launch_floor_s(rows, bound) == pytest.approx(3e-6)
    assert quality.launch_floor_s(rows.take(np.arange(7)), bound[:7]) is None


def test_a_launch_floor_far_above_every_other_backends_is_a_fault() -> None:
    reason = quality.slow_launch([(170e-6, 3e-6), (170e-6, 13e-6)])
    assert reason is not None
    assert "170 us" in reason
    assert "13.0 us" in reason


@pytest.mark.parametrize(
    "sound",
    [
        pytest.param([], id="nothing to compare with"),
        pytest.param([(13e-6, 3e-6)], id="a slower launch"),
        pytest.param([(170e-6, 3e-6), (170e-6, 100e-6)], id="another backend is slow too"),
    ],
)
def test_what_is_no_slow_launch(sound: list[tuple[float, float]]) -> None:
    assert quality.slow_launch(sound) is None


def ratios(value: float, count: int = 8) -> np.ndarray:
    return np.full(count, value)


def test_fewer_bits_that_take_longer_to_read_than_anywhere_else_are_a_fault() -> None:
    reason = quality.slower_than_plain(ratios(3.4), [ratios(6.3), ratios(1.7)])
    assert reason is not None
    assert "3.4 times" in reason
    assert "1.7 times" in reason


@pytest.mark.parametrize(
    ("over_plain", "over_others"),
    [
        pytest.param(ratios(0.6), [ratios(3.0)], id="a gain, if a small one"),
        pytest.param(ratios(1.17), [ratios(2.4)], id="launches, not reading"),
        pytest.param(ratios(3.4), [], id="nothing to compare with"),
        pytest.param(ratios(3.4), [ratios(6.3), ratios(1.0)], id="another backend is slow too"),
        pytest.param(ratios(3.4, 7), [ratios(6.3)], id="too few shapes"),
        pytest.param(ratios(3.4), [ratios(6.3, 7)], id="too few shapes of the other"),
    ],
)
def test_what_is_no_slow_reading(over_plain: np.ndarray, over_others: list[np.ndarray]) -> None:
    assert quality.slower_than_plain(over_plain, over_others) is None


def test_reading_binds_at_few_tokens_and_beyond_a_launch() -> None:
    tokens, latency_s = np.array([1, 64, 65, 8]), np.array([80e-6, 80e-6, 80e-6, 30e-6])
    assert quality.streaming(tokens, latency_s).tolist() == [True, True, False, False]


# --- rows ----------------------------------------------------------------------------------------


def test_repeats_become_their_median() -> None:
    rows = Rows({"m": np.array([2, 1, 2, 2, 1])}, np.array([9.0, 1.0, 5.0, 6.0, 2.0]))
    assert rows.medians().columns["m"].tolist() == [1, 2]
    assert rows.medians().latency_s.tolist() == [1.5, 6.0]


def test_shared_shapes_are_found_in_both() -> None:
    a = Rows({"n": np.array([1, 1, 2]), "m": np.array([1, 2, 1])}, np.ones(3))
    b = Rows({"n": np.array([2, 1, 3]), "m": np.array([1, 2, 1])}, np.ones(3))
    in_a, in_b = shared_positions(a, b)
    assert in_a.tolist() == [1, 2]
    assert in_b.tolist() == [1, 0]


def test_a_contested_curve_keeps_the_kernel_with_most_rows() -> None:
    columns = {"n": np.array([1, 1, 1, 2, 2]), "m": np.array([1, 2, 1, 1, 2])}
    rows = Rows(columns, np.array([10.0, 20.0, 90.0, 30.0, 40.0]))
    kernel = np.array(["main", "main", "other", "main", "other"])
    kept = one_kernel_per_curve(rows, kernel, ("n",))
    # n=1 was measured twice at m=1; along n=2 the kernels take turns, which an engine does too
    assert kept.latency_s.tolist() == [10.0, 20.0, 30.0, 40.0]


def test_a_preferred_kernel_goes_before_the_one_with_most_rows() -> None:
    rows = concatenate([curve(10, 20, 40), curve(5, 9)])
    kernel = np.array(["often"] * 3 + ["good"] * 2)
    kept = one_kernel_per_curve(rows, kernel, ("gemm_dtype", "n", "k"), ("good",))
    assert (1e6 * kept.latency_s).round().tolist() == [5, 9]


def test_messages_are_in_bytes() -> None:
    raw = {
        "op_name": np.array(["all_reduce", "all_reduce"]),
        "nccl_dtype": np.array(["half", "int8"]),
        "num_gpus": np.array([2, 2]),
        "message_size": np.array([1024, 1024]),
        "latency": np.array([0.5, 0.25]),
    }
    rows = communication.nccl(raw, H100)
    assert rows.columns["message_bytes"].tolist() == [2048, 1024]
    assert rows.latency_s.tolist() == [0.5e-3, 0.25e-3]


def test_versions_sort_as_releases_do() -> None:
    ordered = ["0.1.dev19262", "0.5.6.post2", "0.5.10", "1.3.0rc9", "1.3.0rc10", "1.3.0", "2.27"]
    assert sorted(reversed(ordered), key=version_order) == ordered
    with pytest.raises(ValueError, match="not of the form"):
        version_order("latest")


# --- a made-up upstream --------------------------------------------------------------------------

DEVICE = "NVIDIA Made-up"


def write_gemm(systems: Path, backend: str, version: str, dtypes: dict[str, float]) -> None:
    """Writes a GEMM table whose launch floor per dtype is given in milliseconds."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow writes the made-up parquet files")
    parquet = pytest.importorskip("pyarrow.parquet")
    cells = [
        (dtype, m, n, floor + 2 * m * n * 1024 / 1e12)
        for dtype, floor in dtypes.items()
        for n in (64, 128)
        for m in (1, 2, 4, 8, 16, 32)
    ]
    dtype, m, n, latency = (list(column) for column in zip(*cells, strict=True))
    count = len(cells)
    columns = {"device": [DEVICE] * count, "kernel_source": ["main"] * count, "gemm_dtype": dtype}
    columns |= {"m": m, "n": n, "k": [1024] * count, "latency": latency}
    path = systems / "data" / "l40s" / "gemm" / backend / version / "gemm_perf.parquet"
    path.parent.mkdir(parents=True)
    parquet.write_table(pyarrow.table(columns), path)


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    root = tmp_path / "upstream"
    systems = root / "aiconfigurator_core" / "systems"
    systems.mkdir(parents=True)
    slots = {backend: {"current": "2.0"} for backend in ("vllm", "sglang", "trtllm")}
    text = json.dumps({"defaults": slots, "overrides": {}})  # JSON is YAML
    (systems / "query_versions.yaml").write_text(text)
    card = {"gpu": {"mem_bw": 8.64e11, "bfloat16_tc_flops": 3.6e14, "fp8_tc_flops": 7.3e14}}
    card["node"] = {"intra_node_bw": 3.2e10, "num_gpus_per_node": 8}
    (systems / "l40s.yaml").write_text(json.dumps(card))
    metadata = root / "aiconfigurator_core-0.12.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Name: aiconfigurator-core\nVersion: 0.12.0\n")
    write_gemm(systems, "vllm", "2.0", {"bfloat16": 0.004, "fp8": 0.2})
    write_gemm(systems, "vllm", "1.0", {"bfloat16": 0.009, "int8_wo": 0.005})
    write_gemm(systems, "vllm", "3.0", {"bfloat16": 0.001})
    write_gemm(systems, "sglang", "2.0", {"bfloat16": 0.0041, "fp8": 0.006})
    write_gemm(systems, "trtllm", "2.0", {"bfloat16": 0.008, "fp8": 0.005})
    return root


def write_experts(systems: Path, backend: str, version: str, us: dict[str, float]) -> None:
    """Writes an expert table: microseconds per dtype, the same at every token count."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow writes the made-up parquet files")
    parquet = pytest.importorskip("pyarrow.parquet")
    cells = [(dtype, m, us[dtype] * 1e-3) for dtype in us for m in (1, 2, 4, 8, 16, 24, 32, 64)]
    dtype, tokens, latency = (list(column) for column in zip(*cells, strict=True))
    count = len(cells)
    shape = {"hidden_size": 4096, "inter_size": 1536, "topk": 8, "num_experts": 128}
    shape |= {"moe_tp_size": 1, "moe_ep_size": 1}
    columns: dict[str, list[Any]] = {"device": [DEVICE] * count, "kernel_source": ["main"] * count}
    columns |= {"moe_dtype": dtype, "num_tokens": tokens, "distribution": ["balanced"] * count}
    columns |= {key: [value] * count for key, value in shape.items()}
    path = systems / "data" / "l40s" / "moe" / backend / version / "moe_perf.parquet"
    path.parent.mkdir(parents=True)
    parquet.write_table(pyarrow.table({**columns, "latency": latency}), path)


def build(where: Path, out: Path) -> OpTable:
    assert main(["--wheel", str(where), "--gpu", "l40s", "--out", str(out)]) == 0
    return decode((out / "l40s" / "vllm.gemm.xz").read_bytes())


def test_each_group_comes_from_its_best_source(upstream: Path, tmp_path: Path) -> None:
    gemm = build(upstream, tmp_path / "out")
    own = gemm.select(gemm_dtype="bfloat16")
    assert (own.source, own.version) == ("measured", "2.0")
    assert own.latency_s.min() == pytest.approx(4e-6, rel=0.05)
    older = gemm.select(gemm_dtype="int8_wo")
    assert (older.source, older.version) == ("measured", "1.0")
    lent = gemm.select(gemm_dtype="fp8")
    # SGLang's bfloat16 is timed more like vLLM's than TensorRT-LLM's is
    assert (lent.source, lent.transferred_from) == ("transferred", "sglang 2.0")
    assert lent.latency_s.min() == pytest.approx(6e-6, rel=0.05)


def test_the_manifest_says_what_was_rejected(upstream: Path, tmp_path: Path) -> None:
    build(upstream, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "l40s" / "manifest.json").read_text())
    assert manifest["device"] == DEVICE
    assert manifest["upstream"]["licence"] == "Apache-2.0"
    (rejected,) = manifest["rejected"]
    assert rejected["group"] == ["fp8"]
    assert rejected["replaced_by"] == "sglang 2.0"
    assert str(tmp_path) not in json.dumps(manifest)


def test_experts_that_gain_nothing_by_fewer_bits_come_from_an_older_version_or_another_backend(
    upstream: Path, tmp_path: Path
) -> None:
    systems = upstream / "aiconfigurator_core" / "systems"
    slow = {"bfloat16": 500.0, "fp8": 1500.0, "int4_wo": 1600.0}
    write_experts(systems, "vllm", "2.0", slow)
    write_experts(systems, "vllm", "1.0", {"fp8": 300.0})
    write_experts(systems, "trtllm", "2.0", {"bfloat16": 480.0, "fp8": 250.0, "int4_wo": 200.0})
    build(upstream, tmp_path / "out")
    experts = decode((tmp_path / "out" / "l40s" / "vllm.moe.xz").read_bytes())
    fp8, int4 = (experts.select(moe_dtype=dtype) for dtype in ("fp8", "int4_wo"))
    assert (fp8.source, fp8.version) == ("measured", "1.0")
    assert "3.0 times as long" in str(fp8.rejected)
    assert (int4.source, int4.transferred_from) == ("transferred", "trtllm 2.0")
    assert experts.select(moe_dtype="bfloat16").rejected is None


def test_the_same_input_gives_the_same_bytes(upstream: Path, tmp_path: Path) -> None:
    wheel = Path(shutil.make_archive(str(tmp_path / "wheel"), "zip", upstream))
    build(upstream, tmp_path / "a")
    build(wheel.rename(wheel.with_suffix(".whl")), tmp_path / "b")
    files = {p.name: p.read_bytes() for p in (tmp_path / "a" / "l40s").iterdir()}
    assert {p.name: p.read_bytes() for p in (tmp_path / "b" / "l40s").iterdir()} == files


def test_tables_that_are_gone_upstream_go_here_too(upstream: Path, tmp_path: Path) -> None:
    stale = tmp_path / "out" / "l40s" / "vllm.quantum.xz"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"old")
    build(upstream, tmp_path / "out")
    assert not stale.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--wheel", "."], "no kernel tables at '.'"),
        (["--wheel", ".", "--gpu", "l40"], "nearest: l40s"),
    ],
)
def test_mistakes_are_told_and_exit_with_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_another_release_is_refused(upstream: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metadata = upstream / "aiconfigurator_core-0.12.0.dist-info" / "METADATA"
    metadata.write_text("Version: 0.13.0\n")
    assert main(["--wheel", str(upstream)]) == 2
    assert "holds release 0.13.0" in capsys.readouterr().err


# --- the real upstream, where it is installed ----------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "backend", "family"),
    [
        ("a100_sxm", "vllm", "gemm"),
        ("l40s", "trtllm", "generation_attention"),
        ("a100_sxm", "sglang", "custom_allreduce"),
        ("gb200", "trtllm", "alltoall"),
    ],
)
def test_shipped_latencies_are_the_wheels(gpu: str, backend: str, family: str) -> None:
    if importlib.util.find_spec("aiconfigurator_core") is None:
        pytest.skip("aiconfigurator-core, the source of the tables, is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow reads the wheel's parquet files")
    assert gpu in GPUS
    (spec,) = (f for f in FAMILIES if f.name == family)
    with open_upstream("installed") as found:
        newest = spec.versions(found.wheel, gpu, backend)[0]
        theirs, _ = spec.read(newest, found.wheel.system(gpu))
    table = load_table(gpu, backend, family)
    ours = Rows({key: table.column(key) for key in table.keys}, table.latency_s)
    in_ours, in_theirs = shared_positions(ours, theirs)
    assert len(in_ours) >= 0.999 * len(theirs)
    assert ours.latency_s[in_ours] == pytest.approx(theirs.latency_s[in_theirs], rel=1e-3)
