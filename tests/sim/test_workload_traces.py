"""Each trace format, read from rows written out by hand; and what a malformed row says."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.trace_file import TraceFile
from dynosim.sim.workload.trace_rows import TraceRows
from dynosim.sim.workload.traces import read_trace, trace_formats

MOONCAKE = """\
{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [7, 8]}
{"timestamp": 3000, "input_length": 1300, "output_length": 6, "hash_ids": [7, 8, 9]}

{"timestamp": 1500, "input_length": 100, "output_length": 1, "hash_ids": [10]}
"""
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n"
    "2023-11-16 18:17:04.0319601,3180,8\r\n"
)
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n4.25,374,44\n4.314579,396,109\n"
BURST_OLD = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,API log
"""
BURST_NEW = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,1,2.5,ChatGPT,472,18,490,Conversation log
45,1,9.25,ChatGPT,1087,0,1087,Conversation log
118,2,3.5,GPT-4,417,276,693,API log
"""


def read(folder: Path, text: str | bytes, name: str = "trace", **options: Any) -> Workload:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_trace(path, **options)


def refusal(folder: Path, text: str | bytes, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        read(folder, text, **options)
    return str(caught.value)


def rows_of(load: Workload) -> list[tuple[float, int, int]]:
    columns = (load.arrival_s, load.input_tokens, load.output_tokens)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def ids_of(load: Workload) -> list[list[int]]:
    parts = np.split(load.prefix_ids, load.prefix_offsets[1:-1])
    return [part.tolist() for part in parts]


def test_the_formats_are_the_modules_of_the_folder() -> None:
    assert list(trace_formats()) == [
        "azure",
        "burstgpt",
        "dynamo_agentic",
        "mooncake",
        "mooncake_delta",
        "vidur",
    ]


def test_an_outside_package_may_bring_a_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(file: TraceFile, *, block_tokens: int | None = None) -> TraceRows:
        stamps, inputs, outputs = np.array([[5, 2_000_000_005], [1, 2], [3, 4]])
        return TraceRows(arrival_ns=stamps, input_tokens=inputs, output_tokens=outputs)

    outside = ModuleType("mine")
    vars(outside).update(EXPECTS="mine first", sniff=lambda head: head == "mine", read=rows)
    points = [SimpleNamespace(name="mine", load=lambda: outside)]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    assert rows_of(read(tmp_path, "mine\n")) == [(0.0, 1, 3), (2.0, 2, 4)]
    assert rows_of(read(tmp_path, "mine\n", format="mine")) == [(0.0, 1, 3), (2.0, 2, 4)]


def test_reading_a_trace_imports_no_heavy_library() -> None:
    code = (
        "import sys; from dynosim.sim.workload.build import build_workload;"
        "from dynosim.sim.workload.spec import WorkloadSpec; build_workload(WorkloadSpec());"
        "print(sorted({'pandas', 'scipy', 'pydantic', 'optuna', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_mooncake_is_milliseconds_sorted_with_whole_blocks_only(tmp_path: Path) -> None:
    load = read(tmp_path, MOONCAKE)
    assert rows_of(load) == [(0.0, 1024, 5), (1.5, 100, 1), (3.0, 1300, 6)]
    # 1,024 tokens fill two blocks; 100 fill none; of 1,300 the third block is partial.
    assert ids_of(load) == [[7, 8], [], [7, 8]]
    assert load.prefix_block_tokens == 512


def test_mooncake_block_size_may_be_given(tmp_path: Path) -> None:
    row = '{"timestamp": 0, "input_length": 40, "output_length": 5, "hash_ids": [1, 2, 3]}'
    load = read(tmp_path, row, block_tokens=16)
    assert ids_of(load) == [[1, 2]]
    assert load.prefix_block_tokens == 16


def test_mooncake_rows_without_hash_ids_share_nothing(tmp_path: Path) -> None:
    load = read(tmp_path, '{"timestamp": 12.5, "input_length": 40, "output_length": 5}')
    assert rows_of(load) == [(0.0, 40, 5)]
    assert load.prefix_block_tokens == 0
    assert ids_of(load) == [[]]


def test_mooncake_sessions_are_numbered_as_they_appear(tmp_path: Path) -> None:
    ids: list[object] = ["b", None, "a", "b", 7]
    rows = [
        {"timestamp": i, "input_length": 5, "output_length": 5, "hash_ids": [i]}
        | ({"session_id": session} if session else {})
        for i, session in enumerate(ids)
    ]
    load = read(tmp_path, "\n".join(map(json.dumps, rows)))
    assert load.session is not None
    # A row without an id is a session of its own.
    assert load.session.tolist() == [0, 1, 2, 0, 3]


def test_mooncake_writers_that_list_full_blocks_only_are_read(tmp_path: Path) -> None:
    rows = """\
{"timestamp_ms": 1.5, "input_length": 1030, "output_length": 5, "hash_ids": [1, 2]}
{"timestamp_ms": 2.0, "input_length": 100, "output_length": 5, "hash_ids": []}
"""
    load = read(tmp_path, rows)
    assert load.arrival_s.tolist() == [0.0, 0.0005]
    assert ids_of(load) == [[1, 2], []]


def test_mooncake_ids_may_be_any_64_bit_hashes(tmp_path: Path) -> None:
    row = '{"timestamp": 0, "input_length": %d, "output_length": 5, "hash_ids": %s}\n'
    text = row % (1024, [2**64 - 1, 3]) + row % (512, [2**63])
    first, second = ids_of(read(tmp_path, text))
    assert len({*first, *second}) == 3


def test_an_id_that_stands_for_two_prefixes_is_split(tmp_path: Path) -> None:
    row = '{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": %s}\n'
    load = read(tmp_path, row % [1, 5] + row % [2, 5] + row % [1, 5])
    a, b, c = ids_of(load)
    assert a == c
    assert not set(a) & set(b)
    assert load.notes == ("hash_ids that stood for several prefixes were split",)


def test_azure_has_seven_digits_and_carriage_returns(tmp_path: Path) -> None:
    assert rows_of(read(tmp_path, AZURE)) == [(0.0, 4808, 10), (0.0520001, 3180, 8)]


def test_azure_2024_stamps_carry_their_zone(tmp_path: Path) -> None:
    text = AZURE.replace("3.9799600", "3.979960+00:00").replace("4.0319601", "4+00:00")
    assert rows_of(read(tmp_path, text)) == [(0.0, 4808, 10), (0.02004, 3180, 8)]


def test_azure_images_are_noted(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2025-01-01 00:00:00.1234567Z,2,30,4\n"
    )
    load = read(tmp_path, text)
    assert rows_of(load) == [(0.0, 30, 4)]
    assert "NumImages" in load.notes[0]


def test_vidur_is_seconds(tmp_path: Path) -> None:
    assert rows_of(read(tmp_path, VIDUR)) == [(0.0, 374, 44), (0.064579, 396, 109)]


@pytest.mark.parametrize("text", [BURST_OLD, BURST_NEW], ids=["old columns", "new columns"])
def test_burstgpt_is_read_by_column_name_and_failures_are_counted(
    tmp_path: Path, text: str
) -> None:
    load = read(tmp_path, text)
    assert rows_of(load) == [(0.0, 472, 18), (113.0, 417, 276)]
    assert load.notes == ("dropped 1 failed requests (Response tokens 0)",)


@pytest.mark.parametrize("text", [MOONCAKE, AZURE, VIDUR, BURST_NEW])
def test_gzip_byte_order_mark_and_quotes_change_nothing(tmp_path: Path, text: str) -> None:
    plain = rows_of(read(tmp_path, text))
    assert rows_of(read(tmp_path, gzip.compress(text.encode()))) == plain
    assert rows_of(read(tmp_path, b"\xef\xbb\xbf" + text.encode())) == plain
    if not text.startswith("{"):
        head, *rest = text.splitlines()
        quoted = [",".join(f'"{field}"' for field in row.split(",")) for row in rest]
        assert rows_of(read(tmp_path, "\n".join([head, *quoted]))) == plain


def test_rate_scale_divides_the_gaps(tmp_path: Path) -> None:
    assert read(tmp_path, MOONCAKE, rate_scale=2.0).arrival_s.tolist() == [0, 0.75, 1.5]


def test_limit_keeps_the_first_to_arrive(tmp_path: Path) -> None:
    load = read(tmp_path, MOONCAKE, limit=2)
    assert load.arrival_s.tolist() == [0.0, 1.5]
    assert ids_of(load) == [[7, 8], []]
    assert len(read(tmp_path, MOONCAKE, limit=99)) == 3


def ticks(stamps_ms: list[int]) -> str:
    row = '{"timestamp": %d, "input_length": 1, "output_length": 1}\n'
    return "".join(row % stamp for stamp in stamps_ms)


def test_jitter_spreads_a_tick_over_its_interval_and_leaves_single_requests(
    tmp_path: Path,
) -> None:
    stamps = [0] * 400 + [3000] * 400 + [5999, 9000, 12001]
    load = read(tmp_path, ticks(stamps), jitter_ticks=True, seed=3)
    first = read(tmp_path, ticks(stamps), jitter_ticks=True, seed=3, limit=400).arrival_s
    np.testing.assert_array_equal(first, load.arrival_s[:400])  # limit reshuffles nothing
    assert 2.9 < first.max() < 3.0
    assert first.mean() == pytest.approx(1.5, abs=0.15)
    np.testing.assert_allclose(np.diff(load.arrival_s[-3:]), [3.001, 3.001], atol=1e-9)
    other = read(tmp_path, ticks(stamps), jitter_ticks=True, seed=4)
    assert (other.arrival_s != load.arrival_s).any()


def test_jitter_of_millisecond_stamps_stays_within_a_millisecond(tmp_path: Path) -> None:
    stamps = [0, 0, 17, 40, 40, 101, 250, 333, 334, 711]
    load = read(tmp_path, ticks(stamps), jitter_ticks=True)
    np.testing.assert_allclose(load.arrival_s, np.array(stamps) / 1000, atol=1.01e-3)


@given(
    st.lists(
        st.tuples(st.integers(0, 10**7), st.integers(1, 3000), st.integers(1, 2000)), min_size=1
    )
)
def test_any_sound_mooncake_rows_come_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]]
) -> None:
    text, fresh = "", 0
    for at, length, answer in rows:
        ids = list(range(fresh, fresh := fresh + -(-length // 512)))
        row = {"timestamp": at, "input_length": length, "output_length": answer, "hash_ids": ids}
        text += json.dumps(row) + "\n"
    load = read(tmp_path_factory.mktemp("t"), text)
    ordered = sorted(rows, key=lambda row: row[0])
    expected = [((at - ordered[0][0]) / 1000, n_in, n_out) for at, n_in, n_out in ordered]
    assert rows_of(load) == expected
    assert load.prefix_ids.size == sum(length // 512 for _, length, _ in rows)


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 99), st.integers(1, 99))))
def test_the_same_requests_in_every_format_are_the_same_workload(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]]
) -> None:
    rows = [(0, 1, 1), *rows]  # microseconds
    folder = tmp_path_factory.mktemp("t")
    mooncake = "".join(
        json.dumps({"timestamp": us / 1000, "input_length": i, "output_length": o}) + "\n"
        for us, i, o in rows
    )
    vidur = VIDUR.splitlines()[0] + "\n" + "".join(f"{us / 1e6},{i},{o}\n" for us, i, o in rows)
    azure = AZURE.splitlines()[0] + "\n"
    for us, i, o in rows:
        stamp = np.datetime64("2026-01-01T00:00:00", "us") + np.timedelta64(us, "us")
        azure += f"{stamp},{i},{o}\n"
    expected = rows_of(read(folder, mooncake))
    assert rows_of(read(folder, vidur)) == expected
    assert rows_of(read(folder, azure)) == expected


GOOD = '{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1]}\n'


def mooncake_row(**changes: object) -> str:
    row = {"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1]} | changes
    return GOOD + "\n" + json.dumps({k: v for k, v in row.items() if v != "gone"}) + "\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (mooncake_row(timestamp=-1), "`timestamp` is -1"),
        (mooncake_row(timestamp=float("nan")), "`timestamp` is nan"),
        (mooncake_row(timestamp=float("inf")), "`timestamp` is inf"),
        (mooncake_row(input_length=0), "`input_length` is 0"),
        (mooncake_row(output_length=0), "`output_length` is 0"),
        (mooncake_row(output_length=-7), "`output_length` is -7"),
        (mooncake_row(output_length=1.5), "`output_length` is 1.5"),
        (mooncake_row(input_length="5"), '`input_length` is "5"'),
        (mooncake_row(input_length=None), "`input_length` is null"),
        (mooncake_row(input_length=True), "`input_length` is true"),
        (mooncake_row(input_length=10**400), "`input_length` is 1e+300"),
        (mooncake_row(output_length="gone"), "no key `output_length`"),
        (mooncake_row(timestamp="gone"), "no key `timestamp`"),
        (mooncake_row(hash_ids="gone"), "no `hash_ids`, which other rows have"),
        (mooncake_row(hash_ids=[1.5]), "`hash_ids` is [1.5]"),
        (mooncake_row(hash_ids=["a"]), '`hash_ids` is ["a"]'),
        (mooncake_row(hash_ids=[2**64]), "`hash_ids` is [18446744073709551616]"),
        (mooncake_row(hash_ids=3), "`hash_ids` is 3"),
        (mooncake_row(hash_ids=[1, 2]), "2 `hash_ids` for `input_length` 5, but blocks of 512"),
        (mooncake_row(session_id=1.5), "`session_id` is 1.5"),
        (mooncake_row(delay=4), "the row has `delay`"),
        (mooncake_row(chat_id=4), "the row has `chat_id`: Qwen-Bailian rows (seconds"),
        (GOOD + '\n{"timestamp": 0, "input', "malformed JSON"),
        (GOOD + "\n[1, 2]\n", "a list, no object"),
        (GOOD + "\n" + GOOD.strip() + "," + GOOD, "malformed JSON"),
    ],
)
def test_a_malformed_mooncake_row_is_named(tmp_path: Path, text: str, found: str) -> None:
    message = refusal(tmp_path, text, name="bad.jsonl")
    assert f"bad.jsonl:3: {found}" in message
    assert "\n  allowed: " in message or "\n  found: " in message


def test_an_object_split_over_two_lines_is_malformed(tmp_path: Path) -> None:
    assert "bad:1: malformed JSON" in refusal(
        tmp_path, GOOD.replace(", ", "\n", 1), name="bad", format="mooncake"
    )


def test_a_wrong_block_size_is_explained_by_the_right_one(tmp_path: Path) -> None:
    row = '{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": %s}'
    message = refusal(tmp_path, row % list(range(64)))
    assert "all rows fit block_tokens=16" in message


@pytest.mark.parametrize(
    ("text", "where", "found"),
    [
        (VIDUR + "x,1,1\n", 4, "`arrived_at` is 'x'"),
        (VIDUR + "nan,1,1\n", 4, "`arrived_at` is nan"),
        (VIDUR + "-1,1,1\n", 4, "`arrived_at` is -1"),
        (VIDUR + "1,,1\n", 4, "`num_prefill_tokens` is ''"),
        (VIDUR + "1,0,1\n\n1,0,1\n", 4, "`num_prefill_tokens` is 0 (and 1 more such row)"),
        (VIDUR + "1,5,2.5\n", 4, "`num_decode_tokens` is 2.5"),
        (VIDUR + "1,5,inf\n", 4, "`num_decode_tokens` is inf"),
        (VIDUR + "1,5\n", 4, "2 fields: '1,5'"),
        (VIDUR + "1,5,6,7\n", 4, "4 fields: '1,5,6,7'"),
        (VIDUR + '1,"5\n', 4, "2 fields"),
        (VIDUR.splitlines()[0] + "\n", 1, "a header but no rows"),
        (AZURE + "16.11.2023,1,1\n", 4, "`TIMESTAMP` is '16.11.2023'"),
        (AZURE + "NaT,1,1\n", 4, "`TIMESTAMP` is 'NaT'"),
        (AZURE + "2023-13-16 18:17:03,1,1\n", 4, "`TIMESTAMP` is '2023-13-16 18:17:03'"),
        (AZURE + "2023-11-16 18:17:03+02:00,1,1\n", 4, "`TIMESTAMP` is '2023-11-16 18:17:03+02"),
        (AZURE + "2023-11-16 18:17:03,1,0\n", 4, "`GeneratedTokens` is 0"),
        (BURST_NEW + "9,1,1,m,0,4,4,log\n", 5, "`Request tokens` is 0"),
        (BURST_NEW + "9,1,1,m,5,-4,4,log\n", 5, "`Response tokens` is -4"),
        ("what,is,this\n1,2,3\n", 1, "no known trace format has this first line: 'what,is,this'"),
    ],
)
def test_a_malformed_csv_row_is_named(tmp_path: Path, text: str, where: int, found: str) -> None:
    message = refusal(tmp_path, text, name="bad.csv")
    assert f"bad.csv:{where}: {found}" in message
    assert "\n  allowed:" in message


def test_a_missing_column_names_the_nearest(tmp_path: Path) -> None:
    message = refusal(tmp_path, VIDUR.replace("arrived_at", "arrive_at"), format="vidur")
    assert "trace:1: no column `arrived_at`" in message
    assert "nearest: arrive_at" in message


def test_burstgpt_with_nothing_but_failures_is_refused(tmp_path: Path) -> None:
    text = "\n".join([*BURST_OLD.splitlines()[:1], "45,ChatGPT,1087,0,1087,Conversation log"])
    assert "all 1 rows failed" in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "the file is empty"),
        (b" \n\r\n", "the file is empty"),
        (gzip.compress(b""), "the file is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0", "not a text file"),
        (b"caf\xe9,1,2\n", "not a text file"),
        (gzip.compress(MOONCAKE.encode())[:40], "damaged gzip file"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, found: str) -> None:
    assert found in refusal(tmp_path, content)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").touch()
    with pytest.raises(UserError, match=r"chat\.json: no such file\n.*chat\.jsonl"):
        read_trace(tmp_path / "chat.json")
    with pytest.raises(UserError, match="no such folder either"):
        read_trace(tmp_path / "nowhere" / "chat.json")
    with pytest.raises(UserError, match="is a folder"):
        read_trace(tmp_path)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_options_are_refused(tmp_path: Path, scale: float) -> None:
    assert "rate_scale" in refusal(tmp_path, VIDUR, rate_scale=scale)
    assert "limit" in refusal(tmp_path, VIDUR, limit=-1)
    assert "no hash_ids" in refusal(tmp_path, VIDUR, block_tokens=16)
    assert "allowed: azure, burstgpt, dynamo_agentic, mooncake, mooncake_delta, vidur" in refusal(
        tmp_path, VIDUR, format="csv"
    )
