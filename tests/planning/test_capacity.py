"""Capacity: both limits, its interval, the errors of the model, and what the law of users says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dynosim.accuracy.error_classes import FIELDS, ErrorClass
from dynosim.accuracy.intervals import ErrorModel
from dynosim.planning.capacity import find_capacity
from dynosim.planning.observation import stays_grow
from dynosim.search.slo import Slo
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

ENGINE = Deployment(model="Qwen/Qwen3-8B", gpu="h100", backend_version="0.19.0")
MIXED = WorkloadSpec(random_input_len=512, random_output_len=64, random_range_ratio=0.3)
CHAT = (Slo("ttft", "p95", 300.0), Slo("tpot", "p95", 20.0))


def test_the_capacity_keeps_the_limits_and_the_next_load_does_not() -> None:
    found = find_capacity(ENGINE, MIXED, CHAT, seeds=1)
    assert found.at is not None
    assert found.beyond is not None
    assert found.at.excess(CHAT) <= 0 < found.beyond.excess(CHAT)
    assert found.at.load.size == found.value < found.beyond.load.size
    assert math.isnan(found.low)
    assert "TPOT" in found.narrowest


def test_seeds_give_an_interval_around_their_mean() -> None:
    found = find_capacity(ENGINE, MIXED, CHAT, seeds=3)
    assert found.value == pytest.approx(sum(found.per_seed) / 3)
    assert found.low <= found.value <= found.high


def test_the_sweep_doubles_and_counts_who_was_content() -> None:
    found = find_capacity(ENGINE, MIXED, CHAT, seeds=1)
    sizes = [o.load.size for o in found.sweep if o.load.size != found.value]
    assert sizes == [2.0**k for k in range(len(sizes))]
    assert found.sweep[0].ok == found.sweep[0].total
    assert found.sweep[-1].ok < found.sweep[-1].total


def test_a_looser_limit_never_carries_fewer() -> None:
    loose = (Slo("ttft", "p95", 900.0), Slo("tpot", "p95", 40.0))
    tight = find_capacity(ENGINE, MIXED, CHAT, seeds=1)
    assert find_capacity(ENGINE, MIXED, loose, seeds=1).value >= tight.value


def test_a_small_pool_is_named_as_what_is_waited_for() -> None:
    small = Deployment(
        model="Qwen/Qwen3-8B", gpu="h100", num_gpu_blocks_override=400, max_model_len=4096
    )
    found = find_capacity(small, MIXED, (Slo("ttft", "p95", 500.0),), seeds=1)
    assert found.room.kv_tokens == 400 * 16
    assert found.room.kv_requests == pytest.approx(6400 / found.room.live_tokens)
    assert "KV blocks" in found.narrowest


def test_no_user_at_all_is_an_answer() -> None:
    found = find_capacity(ENGINE, MIXED, (Slo("e2el", "p95", 1.0),), seeds=2)
    assert (found.value, found.at, found.users) == (0.0, None, None)


def test_a_limit_on_token_times_alone_is_open_where_others_queue() -> None:
    short = WorkloadSpec(random_input_len=64, random_output_len=16)
    engine = Deployment(model="Qwen/Qwen3-0.6B", gpu="h100", max_num_seqs=4)
    found = find_capacity(engine, short, (Slo("tpot", "p95", 500.0),), seeds=1)
    assert found.is_open
    assert found.value == 16
    assert found.notes


def test_a_rate_that_the_engine_cannot_serve_is_over_the_limit() -> None:
    found = find_capacity(ENGINE, MIXED, (Slo("ttft", "p95", 1e9),), kind="rate", seeds=1)
    assert found.at is not None
    assert found.beyond is not None
    assert not found.beyond.is_stable
    assert found.users is not None
    assert found.users.requests_s == pytest.approx(found.value, rel=0.05)


def test_stays_grow_where_a_tenth_is_left_over() -> None:
    sent_s = np.arange(400) / 10.0
    assert stays_grow(sent_s, 2.0 + 1.1 * sent_s)
    assert not stays_grow(sent_s, 2.0 + 1.01 * sent_s)
    assert not stays_grow(sent_s, 200.0 + 1.1 * sent_s)
    assert not stays_grow(sent_s[:40], 2.0 + 1.1 * sent_s[:40])


def test_errors_of_the_model_move_the_capacity_both_ways() -> None:
    anything = ("*",) * len(FIELDS)
    like = ErrorClass(
        quantity="tpot", key=anything, points=9, groups=3, low=-0.2, median=0.0, high=0.3
    )
    model = ErrorModel(classes={("tpot", anything): like}, widen={}, coverage={})
    found = find_capacity(ENGINE, MIXED, CHAT[1:], seeds=1, errors=model)
    assert found.expected is not None
    slow, fast = found.expected
    assert slow < found.value < fast


def test_an_idle_engine_is_not_bound_by_having_no_requests() -> None:
    found = find_capacity(ENGINE, MIXED, (Slo("e2el", "p95", 1.0),), kind="rate", seeds=1)
    assert found.value == 0
    assert "bound by memory bandwidth" in found.narrowest
    assert "no requests" not in found.narrowest
