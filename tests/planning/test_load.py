"""Loads of one kind differ by their size alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.planning.load import Load, check_fixed, workload_at
from dynosim.sim.workload.spec import WorkloadSpec

MIXED = WorkloadSpec(random_input_len=500, random_output_len=80, random_range_ratio=0.5)


def test_larger_loops_send_the_same_requests_and_more() -> None:
    few = workload_at(MIXED, Load(kind="concurrency", size=2), seed=3)
    many = workload_at(MIXED, Load(kind="concurrency", size=100), seed=3)
    assert (len(few), few.max_concurrency) == (256, 2)
    assert (len(many), many.max_concurrency) == (800, 100)
    assert (few.input_tokens == many.input_tokens[:256]).all()


def test_rates_stretch_the_same_arrivals() -> None:
    spec = WorkloadSpec(num_prompts=50)
    slow, fast = (workload_at(spec, Load(kind="rate", size=r), seed=1) for r in (2, 8))
    assert slow.arrival_s == pytest.approx(4 * fast.arrival_s)


def test_a_trace_keeps_its_order_at_another_rate(checkout: Path) -> None:
    spec = WorkloadSpec(trace=str(checkout / "examples/traces/chat_mooncake.jsonl"))
    load = workload_at(spec, Load(kind="rate", size=5.0), seed=0)
    span_s = load.arrival_s[-1] - load.arrival_s[0]
    assert (len(load) - 1) / span_s == pytest.approx(5.0)
    loop = workload_at(spec, Load(kind="concurrency", size=7), seed=0)
    assert loop.max_concurrency == 7
    assert not np.any(loop.arrival_s)
    assert (loop.input_tokens == load.input_tokens).all()


def test_a_workload_that_fixes_its_load_is_refused() -> None:
    with pytest.raises(UserError, match="request_rate"):
        check_fixed(WorkloadSpec(request_rate=3.0))
