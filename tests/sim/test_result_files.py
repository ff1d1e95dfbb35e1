"""Result files: what other tools read, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from affine_timer import AffineTimer
from dynosim.sim.cluster.cluster import ClusterSpec, run_cluster
from dynosim.sim.engine.engine import EngineLimits
from dynosim.sim.result_files import request_columns, write_json_lines
from dynosim.sim.results import RunResult
from workloads import workload


def run() -> RunResult:
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=100, block_size=10)
    spec = ClusterSpec(timer=AffineTimer(), limits=limits, num_blocks=100, max_model_len=200)
    return run_cluster(spec, workload([0.0, 0.5, 0.6], [20, 500, 30], [5, 5, 1]))


def test_every_request_is_a_json_line_and_what_it_never_had_is_null(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    write_json_lines(path, request_columns(run()))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["request"] for row in rows] == [0, 1, 2]
    served, refused, short = rows
    assert served["ttft_ms"] + 4 * served["tpot_ms"] == pytest.approx(served["e2el_ms"], abs=1e-5)
    assert refused["replica"] == -1
    assert refused["arrival_s"] is refused["ttft_ms"] is refused["e2el_ms"] is None
    assert short["tpot_ms"] is None, "an answer of one token has no time per output token"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text("old\n")
    with pytest.raises(ValueError, match="zip"):
        write_json_lines(path, {"a": np.arange(2), "b": np.arange(1)})
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]
