"""Which shapes are measured, and in which order."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.measure.families import FOR_PEOPLE
from dynosim.hardware_models.measure.grid import families, level, list_grids, plan, read_grid
from dynosim.hardware_models.measure.model_grid import for_model
from dynosim.hardware_models.timing.own_tables import OWN_FAMILY_KEYS


@pytest.mark.parametrize("name", list_grids())
def test_shipped_grids_name_only_what_can_be_measured_and_read(name: str) -> None:
    cases = plan(read_grid(name))
    assert {case.family for case in cases} <= set(families())
    assert len(cases) == len(set(cases))
    assert {case.family for case in cases} - set(FOR_PEOPLE) <= set(OWN_FAMILY_KEYS)


def test_every_family_of_the_grids_has_a_file_and_the_other_way_round() -> None:
    used = {family for name in list_grids() for family in read_grid(name)}
    assert used == set(families())


def test_an_axis_is_measured_at_its_ends_first_then_halved() -> None:
    assert [level(i, 5) for i in range(5)] == [0, 2, 1, 2, 0]
    assert [level(i, 9) for i in range(9)] == [0, 3, 2, 3, 1, 3, 2, 3, 0]
    assert [level(0, 1), level(0, 2), level(1, 2)] == [0, 0, 0]


def test_a_run_cut_short_still_spans_the_grid() -> None:
    """Rank 0 holds the ends of every running axis at every site."""
    cases = plan(read_grid("standard"), ops=["gemm"])
    ranks = [case.rank for case in cases]
    assert ranks == sorted(ranks)
    first = [case for case in cases if case.rank == 0]
    sites = {case.values[:3] for case in cases}
    m = [case.key["m"] for case in cases]
    assert {case.values for case in first} == {(*site, e) for site in sites for e in (1, max(m))}


def test_families_take_turns() -> None:
    cases = plan(read_grid("standard"))
    assert {case.family for case in cases[: len(families())]} == set(families())


def test_a_limit_on_a_product_leaves_out_what_is_beyond_it(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        "elementwise: {bytes_per_token: [2, 4], num_tokens: [1, 8], "
        "at_most: {bytes_per_token num_tokens: 16}}"
    )
    found = {case.values for case in plan(read_grid(str(grid)))}
    assert found == {(2, 1), (4, 1), (2, 8)}


def test_dtypes_asked_for_replace_the_grids() -> None:
    cases = plan(read_grid("standard"), dtypes=["float32", "fp8"])
    dtypes = {(c.family, v) for c in cases for k, v in c.key.items() if k.endswith("_dtype")}
    assert ("gemm", "fp8") in dtypes
    assert ("gemm", "float32") in dtypes
    assert {v for f, v in dtypes if f == "context_attention"} == {"float32"}
    assert {v for f, v in dtypes if f == "nccl"} == {"half"}


def test_only_fp8_leaves_attention_as_the_grid_has_it() -> None:
    cases = plan(read_grid("small"), ops=["context_attention"], dtypes=["fp8"])
    assert {case.key["attn_dtype"] for case in cases} == {"bfloat16"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gem: {m: [1]}", "unknown family 'gem'"),
        ("gemm: {m: [1], n k: [[1, 1]]}", "no values for gemm_dtype"),
        ("gemm: {q: [1]}", "unknown key column 'q'"),
        ("gemm: {gemm_dtype: [bfloat16], m: 1, n k: [[1, 1]]}", "allowed: a list"),
        ("gemm: {gemm_dtype: [bfloat16], m: [1.5], n k: [[1, 1]]}", "whole numbers"),
        ("gemm: {gemm_dtype: [bfloat16], m: [1], n k: [[1]]}", "allowed: rows of 2"),
        ("gemm: 3", "expected a mapping"),
    ],
)
def test_a_bad_grid_is_told_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text(text)
    with pytest.raises(UserError, match=r"grid\.yaml") as error:
        read_grid(str(grid))
    assert message in str(error.value)


def test_unknown_names_of_grids_and_ops_are_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match="nearest: standard"):
        read_grid("standart")
    with pytest.raises(UserError, match="nearest: gemm"):
        plan(read_grid("small"), ops=["gem"])


def test_a_model_narrows_the_grid_to_its_own_shapes() -> None:
    """Llama 3.1 8B at TP 2: 32/8 heads of 128, hidden 4096, intermediate 14336."""
    grid = for_model(read_grid("standard"), "meta-llama/Llama-3.1-8B", [2])
    cases = plan(grid, ops=["gemm", "generation_attention", "nccl", "elementwise"])
    sites = {(c.key["n"], c.key["k"]) for c in cases if c.family == "gemm"}
    assert {(3072, 4096), (4096, 2048), (14336, 4096), (4096, 7168), (64128, 4096)} == sites
    heads = {c.values[2:6] for c in cases if c.family == "generation_attention"}
    assert heads == {(128, 0, 4, 16)}
    assert {c.key["num_gpus"] for c in cases if c.family == "nccl"} == {2}
    moved = {c.key["bytes_per_token"] for c in cases if c.family == "elementwise"}
    assert 4 * 2 * 4096 in moved


def test_one_gpu_needs_no_all_reduce() -> None:
    assert "nccl" not in for_model(read_grid("standard"), "meta-llama/Llama-3.1-8B", [1])


def test_products_of_axes_are_all_there(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text("copy: [{op: [read], bytes: [4, 8]}, {op: [write], bytes: [4]}]")
    found = {case.values for case in plan(read_grid(str(grid)))}
    assert found == {*product(["read"], [4, 8]), ("write", 4)}


def test_the_format_is_documented_column_by_column() -> None:
    text = (Path(__file__).parents[2] / "docs" / "kernel-tables.md").read_text()
    words = set(text.replace("`", " ").replace(":", " ").replace(";", " ").split())
    for family in families():
        assert family in words or f"{family}.csv" in words
        if family not in FOR_PEOPLE:
            assert set(OWN_FAMILY_KEYS[family]) <= words, family
