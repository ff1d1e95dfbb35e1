"""The built-in engine forms the batches of vLLM, and those of the simulator. No PyTorch here."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affine_timer import AffineTimer
from counting_runner import CountingRunner
from dynosim.hardware_models.errors import UserError
from dynosim.sim.engine.limits import EngineLimits
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.stepped.clocks import Replayed, Reported
from dynosim.verification.stepped.parity import first_difference, replayed
from dynosim.verification.stepped.run import run_stepped
from dynosim.verification.stepped.simulated import SimulatedEngine
from dynosim.verification.torch_engine.block_pool import BlockPool
from dynosim.verification.torch_engine.engine import BuiltinEngine
from replay import Record, Step, engine_limits, load, recorded_steps, with_block_units

GROUPS = ("fcfs", "long_prefill", "watermark", "first_chunk_admission")


# --- against vLLM's own recorded steps --------------------------------------------------------


def prompt_of(record: Record, index: int) -> list[int]:
    """Returns token ids that are shared exactly where the recorded prompts' units are."""
    size, length = record["unit_tokens"], record["prompt_tokens"][index]
    prefix = [unit * size + j for unit in record["units"][index] for j in range(size)]
    own = (1 << 30) + (index << 20)
    return [*prefix, *range(own, own + length - len(prefix))]


def our_steps(record: Record) -> Iterator[Step]:
    options = record["options"]
    engine = BuiltinEngine(engine_limits(record, 1), options["num_blocks"], CountingRunner())
    arrivals = record["arrival_step"]
    now, arrived, unfinished = 0, 0, set[int]()
    seen: set[int] = set()
    while arrived < len(arrivals) or unfinished:
        if not unfinished:
            now = max(now, arrivals[arrived])
        while arrived < len(arrivals) and arrivals[arrived] <= now:
            engine.add(arrived, prompt_of(record, arrived), record["output_tokens"][arrived])
            unfinished.add(arrived)
            arrived += 1
        step = engine.step()
        entered = {w.request: w.context_tokens for w in step.work if w.request not in seen}
        seen = {w.request for w in step.work} | seen - set(step.preempted)
        unfinished -= set(step.finished)
        yield Step(
            tokens={work.request: work.tokens for work in step.work},
            hits=entered,
            preempted=sorted(step.preempted),
            finished=sorted(step.finished),
        )
        now += 1


@pytest.mark.parametrize("group", GROUPS)
def test_every_step_is_the_one_that_vllm_formed(group: str) -> None:
    for number, record in enumerate(load(group)):
        pairs = zip_longest(recorded_steps(record), our_steps(with_block_units(record)))
        for step, (theirs, ours) in enumerate(pairs):
            assert ours == theirs, f"workload {number}, step {step}, {record['options']}"


# --- against the simulator --------------------------------------------------------------------

LENGTHS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 60), st.integers(1, 24)), min_size=1, max_size=10
)


@settings(max_examples=60, deadline=None)
@given(
    lengths=LENGTHS,
    budget=st.sampled_from([8, 24, 64]),
    seqs=st.integers(1, 6),
    blocks=st.integers(12, 30),
    caching=st.booleans(),
    slots=st.integers(1, 6),
    warmup=st.integers(0, 2),
)
def test_the_simulator_on_its_clock_makes_the_same_steps(
    lengths: list[tuple[int, int, int]],
    budget: int,
    seqs: int,
    blocks: int,
    caching: bool,
    slots: int,
    warmup: int,
) -> None:
    limits = EngineLimits(
        max_num_seqs=min(seqs, budget),
        max_num_batched_tokens=budget,
        block_size=8,
        enable_prefix_caching=caching,
        max_run=1,
    )
    plan = LoadPlan(
        # One of four shared beginnings, and tokens of its own.
        prompts=tuple(
            [*range(100 * kind, 100 * kind + 20), *range(1000 * i + 1000, 1000 * i + 1000 + n)]
            for i, (kind, n, _) in enumerate(lengths)
        ),
        output_tokens=tuple(answer for *_, answer in lengths),
        send_s=None,
        max_concurrency=slots,
        warmup=min(warmup, len(lengths)),
    )
    engine = BuiltinEngine(limits, blocks + 2, CountingRunner())
    simulated = SimulatedEngine(AffineTimer(), limits, blocks + 2)
    measured = run_stepped(plan, engine, Replayed([0.001 * (i % 7) for i in range(5000)]))
    assert first_difference(measured, replayed(plan, simulated, measured)) is None


def test_its_step_costs_are_the_clock_of_the_simulators_times() -> None:
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=32, block_size=8, max_run=1)
    plan = LoadPlan(
        prompts=(range(50), range(200, 240)),
        output_tokens=(9, 5),
        send_s=(0.0, 0.007),
        max_concurrency=None,
    )
    one = run_stepped(plan, SimulatedEngine(AffineTimer(), limits, 30), Reported("wall"))
    other = replayed(plan, BuiltinEngine(limits, 30, CountingRunner()), one)
    assert other.observed.requests == one.observed.requests


# --- what it refuses, and its blocks by hand --------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"scheduling_policy": "priority"},
            "scheduling_policy: the built-in engine has no priority",
        ),
        ({"async_scheduling": True}, "async_scheduling"),
        ({"scheduler": "sglang"}, "backend: the built-in engine has no sglang"),
    ],
)
def test_options_that_it_does_not_have_are_refused_by_name(
    options: dict[str, object], message: str
) -> None:
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=32, **options)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=message):
        BuiltinEngine(limits, 30, CountingRunner())


def test_a_request_that_never_fits_is_refused() -> None:
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=32, block_size=8)
    engine = BuiltinEngine(limits, 2, CountingRunner())
    engine.add(0, range(10), 7)
    with pytest.raises(UserError, match="request 1: 17 tokens of KV, but the cache holds 16"):
        engine.add(1, range(10), 8)


def test_a_prefix_is_found_block_by_block_but_for_its_last_token() -> None:
    pool = BlockPool(8, 4, caches=True)
    blocks = pool.take(3)
    names: list[int] = []
    pool.name(range(12), 12, blocks, names)
    assert pool.find(range(12))[0] == blocks[:2], "the last token is computed for its logits"
    assert pool.find(range(13))[0] == blocks
    assert pool.find([0, 1, 2, 9, 4, 5, 6, 7, 8])[0] == []


def test_blocks_that_cache_nothing_are_taken_first_then_the_one_freed_longest_ago() -> None:
    pool = BlockPool(4, 4, caches=True)
    old, new = pool.take(1), pool.take(2)
    pool.name(range(4), 4, old, [])
    pool.name(range(100, 108), 8, new, [])
    pool.free(old)
    pool.free(new)
    assert pool.num_free == 4
    assert pool.take(1) == [3], "never used"
    assert pool.take(1) == old
    assert pool.take(1) == new[1:], "the end of a prefix goes before its beginning"
    assert pool.find(range(100, 109))[0] == new[:1]


def test_an_empty_cache_finds_nothing() -> None:
    pool = BlockPool(4, 4, caches=True)
    blocks = pool.take(2)
    pool.name(range(8), 8, blocks, [])
    with pytest.raises(AssertionError, match="holds blocks"):
        pool.forget_all()
    pool.free(blocks)
    pool.forget_all()
    assert pool.find(range(9)) == ([], [])
    assert sorted(pool.take(4)) == [0, 1, 2, 3]
