"""Measured kernel tables: what a file holds, how rows are selected, what is shipped."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynosim.hardware_models.build_data.pack import Labels, pack
from dynosim.hardware_models.build_data.rows import Rows
from dynosim.hardware_models.timing import tables
from dynosim.hardware_models.timing.tables import (
    FAMILY_KEYS,
    MissingTable,
    OpTable,
    Origin,
    decode,
    load_table,
    table_catalogue,
)

DEVICES = {
    "a100_sxm": "NVIDIA A100-SXM4-80GB",
    "h100_sxm": "NVIDIA H100 80GB HBM3",
    "h200_sxm": "NVIDIA H200",
    "b200_sxm": "NVIDIA B200",
    "gb200": "NVIDIA GB200",
    "b300_sxm": "NVIDIA B300 SXM6 AC",
    "gb300": "NVIDIA GB300",
    "l40s": "NVIDIA L40S",
    "rtx_pro_6000_server": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
}
LABELS = Labels(gpu="h200_sxm", family="gemm", backend="vllm", version="2.0")
OWN = Origin(source="measured", backend="vllm", version="2.0", device="NVIDIA H200", upstream="a")
LENT = Origin(
    source="transferred",
    backend="sglang",
    version="1.5",
    device="NVIDIA H200",
    upstream="b",
    transferred_from="sglang 1.5",
    rejected="vllm 2.0: slow",
)


def gemm_rows(dtype: str, shapes: list[tuple[int, int, int, float]]) -> Rows:
    n, k, m, latency_s = (np.array(column) for column in zip(*shapes, strict=True))
    columns = {"gemm_dtype": np.full(len(n), dtype), "n": n, "k": k, "m": m}
    return Rows(columns, latency_s.astype(float))


def small_table() -> OpTable:
    own = gemm_rows("bfloat16", [(64, 32, 1, 1e-6), (64, 32, 8, 2e-6), (128, 32, 8, 4e-6)])
    lent = gemm_rows("fp8", [(64, 32, 8, 1.5e-6)])
    return decode(pack(LABELS, [(own, OWN), (lent, LENT)]))


# --- the file ------------------------------------------------------------------------------------

shapes = st.dictionaries(
    st.tuples(*[st.integers(1, 10**9)] * 3), st.floats(1e-9, 1e3), min_size=1, max_size=50
)


@given(shapes)
@settings(max_examples=50)
def test_a_file_gives_back_every_shape_once_in_order_within_a_thousandth(
    measured: dict[tuple[int, int, int], float],
) -> None:
    rows = gemm_rows("bfloat16", [(*shape, latency) for shape, latency in measured.items()])
    table = decode(pack(LABELS, [(rows, OWN)]))
    columns = [table.column(key).tolist() for key in ("n", "k", "m")]
    assert list(zip(*columns, strict=True)) == sorted(measured)
    expected = [measured[shape] for shape in sorted(measured)]
    assert table.latency_s == pytest.approx(expected, rel=1e-3)


def test_axes_longer_than_a_byte_can_number() -> None:
    rows = gemm_rows("bfloat16", [(64, 32, m, 1e-6 * m) for m in range(1, 1001)])
    table = decode(pack(LABELS, [(rows, OWN)]))
    assert table.column("m").tolist() == list(range(1, 1001))


def test_the_order_of_the_rows_does_not_change_the_bytes() -> None:
    listed = [(64, 32, m, 1e-6 * m) for m in (1, 2, 4, 8)]
    forward = pack(LABELS, [(gemm_rows("bfloat16", listed), OWN)])
    assert pack(LABELS, [(gemm_rows("bfloat16", listed[::-1]), OWN)]) == forward


@pytest.mark.parametrize("junk", [b"", b"no table", lzma.compress(b"no table either")])
def test_other_bytes_are_refused(junk: bytes) -> None:
    with pytest.raises(ValueError, match="not a kernel table"):
        decode(junk)


# --- selecting -----------------------------------------------------------------------------------


def test_select_drops_the_key_and_shrinks_the_axes() -> None:
    chosen = small_table().select(gemm_dtype="bfloat16", n=64)
    assert chosen.keys == ("k", "m")
    assert [list(axis) for axis in chosen.axes] == [[32], [1, 8]]
    assert chosen.latency_s == pytest.approx([1e-6, 2e-6], rel=1e-3)


def test_a_group_tells_its_own_source() -> None:
    table = small_table()
    assert (table.source, table.version) == ("transferred", "2.0")
    own, lent = table.select(gemm_dtype="bfloat16"), table.select(gemm_dtype="fp8")
    assert (own.source, own.transferred_from, own.rejected) == ("measured", None, None)
    assert (lent.source, lent.transferred_from, lent.rejected) == (
        "transferred",
        "sglang 1.5",
        "vllm 2.0: slow",
    )
    assert lent.device == "NVIDIA H200"


def test_grid_has_nan_where_nothing_was_measured() -> None:
    grid = small_table().select(gemm_dtype="bfloat16", k=32).grid()
    assert grid == pytest.approx(np.array([[1e-6, 2e-6], [np.nan, 4e-6]]), rel=1e-3, nan_ok=True)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"gemm_dtype": "nvfp4"}, "no gemm_dtype=nvfp4, only bfloat16, fp8"),
        ({"batch": 3}, "no key 'batch', only gemm_dtype, n, k, m"),
        ({"gemm_dtype": "fp8", "n": 128}, "no row with gemm_dtype=fp8, n=128"),
    ],
)
def test_what_is_missing_is_said_with_what_is_there(
    asked: dict[str, str | int], answer: str
) -> None:
    with pytest.raises(MissingTable, match=answer):
        small_table().select(**asked)


def test_a_table_built_by_hand_can_be_selected_without_origins() -> None:
    table = OpTable(
        gpu="x",
        family="gemm",
        backend="vllm",
        version="1",
        device="d",
        source="measured",
        transferred_from=None,
        rejected=None,
        keys=("n", "m"),
        axes=(np.array([4, 8]), np.array([1, 2])),
        index=np.array([[0, 0], [0, 1], [1, 1]], dtype=np.int32),
        latency_s=np.array([1.0, 2.0, 3.0]),
    )
    assert table.select(n=4).latency_s.tolist() == [1.0, 2.0]
    assert table.select(n=8, m=2).keys == ()


# --- what is shipped -----------------------------------------------------------------------------


def test_every_gpu_has_the_tables_of_a_dense_model_for_every_backend() -> None:
    held = {(e.gpu, e.backend, e.family) for e in table_catalogue()}
    needed = ("gemm", "context_attention", "generation_attention", "custom_allreduce", "moe")
    for gpu in DEVICES:
        assert (gpu, "nccl", "nccl") in held
        for backend in ("vllm", "sglang", "trtllm"):
            assert {(gpu, backend, family) for family in needed} <= held


def test_sizes_stay_small() -> None:
    per_gpu: Counter[str] = Counter()
    for entry in table_catalogue():
        per_gpu[entry.gpu] += entry.bytes
    assert max(per_gpu.values()) <= 2_000_000
    assert per_gpu.total() <= 12_000_000


def test_files_are_those_of_the_manifests() -> None:
    entries = table_catalogue()
    for entry in entries:
        packed = (tables.TABLES_DIR / entry.gpu / entry.file).read_bytes()
        assert hashlib.sha256(packed).hexdigest() == entry.sha256
    listed = {f"{entry.gpu}/{entry.file}" for entry in entries}
    found = {p.relative_to(tables.TABLES_DIR).as_posix() for p in tables.TABLES_DIR.rglob("*.xz")}
    assert found == listed


def test_devices_are_those_of_the_gpus() -> None:
    assert {(e.gpu, e.device) for e in table_catalogue()} == set(DEVICES.items())


def test_every_table_has_its_familys_keys_and_plausible_latencies() -> None:
    for entry in table_catalogue():
        if entry.gpu in ("a100_sxm", "rtx_pro_6000_server"):
            table = load_table(entry.gpu, entry.backend, entry.family)
            assert table.keys == FAMILY_KEYS[entry.family]
            assert len(table) == entry.rows
            assert table.latency_s.min() > 2e-7
            assert table.latency_s.max() < 120


def test_the_faulty_fp8_block_gemms_are_replaced() -> None:
    for gpu in DEVICES.keys() - {"a100_sxm"}:
        gemm = load_table(gpu, "vllm", "gemm").select(gemm_dtype="fp8_block")
        assert gemm.source == "transferred"
        assert "launch floor" in (gemm.rejected or "")
        assert gemm.select(n=1024, k=1024).latency_s.min() < 40e-6
        assert load_table(gpu, "vllm", "gemm").select(gemm_dtype="bfloat16").source == "measured"


def test_the_faulty_a100_decode_attention_is_replaced() -> None:
    attention = load_table("a100_sxm", "trtllm", "generation_attention")
    assert attention.source == "transferred"
    assert "utilisation above 1" in (attention.rejected or "")
    assert load_table("a100_sxm", "vllm", "generation_attention").source == "measured"


@pytest.mark.parametrize(
    ("gpu", "dtype"), [("h100_sxm", "fp8"), ("h200_sxm", "fp8"), ("h200_sxm", "int4_wo")]
)
def test_the_slow_experts_of_hopper_are_replaced(gpu: str, dtype: str) -> None:
    shape = {"hidden_size": 4096, "inter_size": 1536, "topk": 8, "num_experts": 128}
    shape |= {"moe_tp_size": 1, "moe_ep_size": 1, "num_tokens": 32}
    moe = load_table(gpu, "vllm", "moe").select(distribution="power_law_1.2", **shape)
    packed, plain = moe.select(moe_dtype=dtype), moe.select(moe_dtype="bfloat16")
    assert "slower than bfloat16" in (packed.rejected or "")
    assert plain.source == "measured"
    assert packed.latency_s[0] < 0.9 * plain.latency_s[0]


def test_nothing_but_the_known_faults_is_rejected_as_a_group() -> None:
    replaced = [
        (gpu, r["backend"], r["family"], tuple(r["group"]))
        for gpu in DEVICES
        for r in json.loads((tables.TABLES_DIR / gpu / "manifest.json").read_text())["rejected"]
        if r["replaced_by"]
    ]
    fp8_block = {(gpu, "vllm", "gemm", ("fp8_block",)) for gpu in DEVICES.keys() - {"a100_sxm"}}
    a100 = {("a100_sxm", "trtllm", "generation_attention", ("bfloat16", "bfloat16", 128, 0))}
    experts = {r[:3] + r[3][:1] for r in replaced if r[2] == "moe"}
    assert experts == {
        ("h100_sxm", "vllm", "moe", "fp8"),
        ("h200_sxm", "vllm", "moe", "fp8"),
        ("h200_sxm", "vllm", "moe", "int4_wo"),
        ("b200_sxm", "vllm", "moe", "nvfp4"),
        ("gb200", "vllm", "moe", "nvfp4"),
        ("b300_sxm", "trtllm", "moe", "fp8_block"),
        *((gpu, "trtllm", "moe", "nvfp4") for gpu in ("b200_sxm", "b300_sxm", "gb200", "gb300")),
    }
    untuned = {
        (gpu, "trtllm", "gemm", ("nvfp4",)) for gpu in ("b200_sxm", "b300_sxm", "gb200", "gb300")
    }
    assert {r for r in replaced if r[2] != "moe"} == fp8_block | a100 | untuned


def test_nccl_is_the_same_for_every_backend() -> None:
    assert load_table("h200_sxm", "vllm", "nccl") is load_table("h200_sxm", "trtllm", "nccl")


def test_a_table_is_read_once() -> None:
    assert load_table("l40s", "vllm", "gemm") is load_table("l40s", "vllm", "gemm")


@pytest.mark.parametrize("gpu", ["nowhere", "h200_sxm"])
def test_an_absent_table_is_an_error_in_words(gpu: str) -> None:
    with pytest.raises(MissingTable, match=f"{gpu}: no measured gemm table for orca"):
        load_table(gpu, "orca", "gemm")


def test_tables_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        load_table("l40s", "vllm", "gemm").latency_s[0] = 1.0
