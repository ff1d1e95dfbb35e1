"""Agents' traces: requests that wait for several others, and for tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from affine_timer import AffineTimer
from dynosim.hardware_models.errors import UserError
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.workload.traces import read_trace

SPEC = ClusterSpec(
    timer=AffineTimer(0.010, 0.0, 0.0, 0.0, 0.0),
    limits=EngineLimits(max_num_seqs=64, max_num_batched_tokens=8192),
    num_blocks=4000,
    max_model_len=100_000,
)


def row(name: str, *waits: str, **more: Any) -> dict[str, Any]:
    return {"request_id": name, "wait_for": list(waits), "input_length": 100} | {
        "output_length": 10,
        **more,
    }


def trace(folder: Path, *rows: dict[str, Any]) -> Path:
    file = folder / "agents.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return file


PLAN = row("plan", timestamp=500, output_length=5)


def test_an_agent_spawns_two_and_joins_them(tmp_path: Path) -> None:
    file = trace(
        tmp_path,
        PLAN,
        row("search", "plan", delay=20, tool_wait_ms=30, output_length=10),
        row("read", "plan", output_length=50),
        row("write", "search", "read", tool_wait_ms=100),
    )
    load = read_trace(file)
    assert load.turns is not None
    assert load.turns.before.tolist() == [0, 0, 1, 2]
    assert load.turns.think_s.tolist() == pytest.approx([0.0, 0.05, 0.0, 0.1])
    result = run_cluster(SPEC, load)
    plan, search, read, write = range(4)
    assert result.sent_s[search] == pytest.approx(result.finish_s[plan] + 0.05)
    assert result.sent_s[read] == pytest.approx(result.finish_s[plan])
    # The slower of the two decides.
    assert result.finish_s[read] > result.finish_s[search]
    assert result.sent_s[write] == pytest.approx(result.finish_s[read] + 0.1)


def test_rows_may_stand_before_those_that_they_wait_for(tmp_path: Path) -> None:
    file = trace(
        tmp_path,
        row("last", "middle", input_length=30),
        row("other", timestamp=0, input_length=40),
        row("middle", "first", input_length=20),
        row("first", timestamp=900, input_length=10),
    )
    load = read_trace(file)
    # In order of arrival: a row that waits has the arrival of the last it waits for.
    assert load.input_tokens.tolist() == [40, 10, 20, 30]
    assert load.arrival_s.tolist() == [0.0, 0.9, 0.9, 0.9]
    assert load.turns is not None
    assert load.turns.before.tolist() == [1, 2]
    assert run_cluster(SPEC, load).completed.all()


def test_nobody_waits_for_rows_that_are_left_out(tmp_path: Path) -> None:
    file = trace(tmp_path, PLAN, row("next", "plan"), row("later", timestamp=9000))
    load = read_trace(file, limit=2)
    assert load.turns is not None
    assert load.turns.offsets.tolist() == [0, 0, 1]


def test_prefixes_and_sessions_go_with_their_rows(tmp_path: Path) -> None:
    file = trace(
        tmp_path,
        row("b", "a", input_length=1100, hash_ids=[1, 2, 3], session_id="s"),
        row("a", timestamp=0, input_length=600, hash_ids=[1, 9], session_id="s"),
    )
    load = read_trace(file, "dynamo_agentic")
    assert load.input_tokens.tolist() == [600, 1100]
    assert load.prefix_ids.tolist() == [1, 1, 2]
    assert load.session is not None
    assert load.session.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("rows", "line", "wrong"),
    [
        ([PLAN, row("x", "plam")], 2, r"names 'plam'.*\n.*nearest: 'plan'"),
        ([PLAN, row("plan", timestamp=1)], 2, "also that of line 1"),
        ([PLAN, row("a", "b"), row("b", "a")], 2, "waits for itself"),
        ([PLAN, row("a", "a")], 2, "waits for itself"),
        ([PLAN, row("a")], 2, "no key `timestamp`"),
        (
            [PLAN, {"timestamp": 1, "input_length": 1, "output_length": 1}],
            2,
            "`request_id` is missing",
        ),
        ([PLAN, row("a") | {"wait_for": "plan"}], 2, "`wait_for` is"),
        ([PLAN, row("a", "plan", tool_wait_ms=-1)], 2, "`tool_wait_ms` is -1"),
        ([PLAN, row("a", "plan", delay="soon")], 2, "`delay` is"),
        ([PLAN, row("a", "plan", output_length=0)], 2, "`output_length` is 0"),
        ([PLAN, row("a", dependencies=[])], 2, "1.6"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, rows: list[dict[str, Any]], line: int, wrong: str
) -> None:
    with pytest.raises(UserError, match=rf"(?s)agents.jsonl:{line}.*{wrong}"):
        read_trace(trace(tmp_path, *rows), "dynamo_agentic")


def test_such_rows_are_not_taken_for_mooncakes(tmp_path: Path) -> None:
    file = trace(tmp_path, PLAN, row("next", "plan"))
    with pytest.raises(UserError, match="dynamo_agentic"):
        read_trace(file, "mooncake")


def test_a_wide_tree_is_served_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = [PLAN]
    for i in range(300):
        waits = {rows[j]["request_id"] for j in rng.integers(0, len(rows), 3)}
        rows.append(row(f"r{i}", *sorted(waits), tool_wait_ms=float(rng.integers(0, 50))))
    load = read_trace(trace(tmp_path, *rows))
    result = run_cluster(SPEC, load)
    assert load.turns is not None
    assert result.completed.all()
    owner = np.repeat(np.arange(len(load)), np.diff(load.turns.offsets))
    earliest = result.finish_s[load.turns.before] + load.turns.think_s[owner]
    assert (result.sent_s[owner] >= earliest - 1e-9).all()
