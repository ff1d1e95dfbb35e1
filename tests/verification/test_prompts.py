"""Prompts share tokens exactly where the workload shares prefix blocks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.client import ClientPolicy
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.verification.load.plan import plan_load
from dynosim.verification.load.prompts import make_prompts
from dynosim.verification.load.token_ids import TokenIds
from loads import Chain, workload

IDS = TokenIds(first=100, end=200)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns how many tokens two prompts have in common from the start."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def test_blocks_that_are_shared_are_the_same_tokens_and_nothing_else_is() -> None:
    load = workload([(0, 1), (0, 1), (0, 2), (), (5,)], own=[3, 0, 6, 9, 1])
    prompts = [list(prompt) for prompt in make_prompts(load, IDS)]
    assert [len(p) for p in prompts] == [11, 8, 14, 9, 5]
    assert common(prompts[0], prompts[1]) == 8
    assert common(prompts[0], prompts[2]) == common(prompts[1], prompts[2]) == 4
    assert {common(prompts[i], prompts[3]) for i in (0, 1, 2, 4)} == {0}
    assert {common(prompts[i], prompts[4]) for i in (0, 1, 2, 3)} == {0}


# Words over three letters: the longest common start of two words is what two requests share.
words = st.lists(st.tuples(st.text("abc", max_size=4), st.integers(0, 5)), min_size=1, max_size=12)


@given(words=words, width=st.integers(2, 60), seed=st.integers(0, 3))
def test_any_workload_is_shared_to_the_token(
    words: list[tuple[str, int]], width: int, seed: int
) -> None:
    words = [(word, own) for word, own in words if word or own] or [("a", 0)]
    names: dict[str, int] = {}
    chains: list[Chain] = [
        tuple(names.setdefault(w[: k + 1], len(names)) for k in range(len(w))) for w, _ in words
    ]
    # Room for four digits, with which two ids tell sixteen branches apart.
    own = [tokens and tokens + 3 for _, tokens in words]
    load = workload(chains, own)
    prompts = [list(p) for p in make_prompts(load, TokenIds(first=7, end=7 + width, seed=seed))]
    for i, j in itertools.combinations(range(len(words)), 2):
        shared = 4 * common(chains[i], chains[j])
        found = common(prompts[i], prompts[j])
        # With fewer ids than branches they part within a block, never beyond it.
        assert shared <= found <= shared + (0 if width > 40 else 3)
        if chains[i] == chains[j] and not own[i] and not own[j]:
            assert prompts[i] == prompts[j]
    assert all(7 <= token < 7 + width for prompt in prompts for token in prompt)
    assert [len(p) for p in prompts] == load.input_tokens.tolist()


def test_equal_seeds_give_equal_prompts_and_others_new_ones() -> None:
    load = workload([(), ()], own=[50, 50])
    one, same, other = (
        [list(p) for p in make_prompts(load, replace(IDS, seed=seed))] for seed in (1, 1, 2)
    )
    assert one == same
    assert max(common(p, q) for p, q in zip(one, other, strict=True)) < 5
    longer = [list(p) for p in make_prompts(workload([(), ()], own=[50, 51]), replace(IDS, seed=1))]
    assert common(one[0], longer[0]) < 5, "another workload has other prompts"


def test_too_few_ids_to_tell_prompts_apart() -> None:
    load = workload([()] * 5, own=[1] * 5)
    with pytest.raises(UserError, match=r"2 token ids cannot tell 5 prompts apart within 1 token"):
        make_prompts(load, TokenIds(first=0, end=2))
    with pytest.raises(UserError, match="at least two ids"):
        TokenIds(first=3, end=4)


@pytest.mark.parametrize(("size", "special"), [(128_256, 128_000), (151_936, 151_643), (512, 502)])
def test_the_middle_of_a_vocabulary_has_no_special_ids(size: int, special: int) -> None:
    ids = TokenIds.of_vocabulary(size)
    assert ids.first > 50
    assert ids.end <= special


def test_warm_up_requests_go_first_and_share_nothing() -> None:
    load = workload([(0,), (0,)], own=[4, 4], max_concurrency=2)
    plan = plan_load(load, IDS, warmup=2)
    assert (len(plan), plan.warmup, plan.send_s, plan.max_concurrency) == (4, 2, None, 2)
    assert plan.shared_tokens == 4
    prompts = [list(p) for p in plan.prompts]
    assert [len(p) for p in prompts] == [8, 8, 8, 8]
    assert common(prompts[2], prompts[3]) == 4
    assert {common(prompts[i], prompts[j]) for i in (0, 1) for j in (2, 3)} == {0}


def test_an_open_loop_keeps_its_times() -> None:
    load = workload([(), (), ()], own=[4, 4, 4], arrival_s=[0.0, 0.5, 0.75])
    plan = plan_load(load, IDS, warmup=1)
    assert plan.send_s == (0.0, 0.0, 0.5, 0.75)
    assert plan.max_concurrency is None


def test_turns_wait_for_the_same_ones_behind_the_warm_up() -> None:
    spec = WorkloadSpec(num_prompts=4, num_turns=2, think_time_s=3.0, random_input_len=20)
    load = build_workload(spec)
    plan = plan_load(load, TokenIds(first=10, end=5000), warmup=3)
    assert plan.turns is not None
    assert plan.turns.problem() is None
    assert plan.turns.before.tolist() == [3, 5]
    assert plan.turns.is_first.tolist() == [True, True, True, True, False, True, False]
    assert plan.turns.think_s.tolist() == [0, 0, 0, 0, 3, 0, 3]
    # The second turn repeats all full blocks of the first one's prompt.
    full = int(load.input_tokens[0]) // load.prefix_block_tokens * load.prefix_block_tokens
    assert common(plan.prompts[3], plan.prompts[4]) >= full


def test_clients_that_give_up_and_turns_behind_a_cap_are_refused() -> None:
    load = workload([(), ()], own=[4, 4])
    with pytest.raises(UserError, match="client_timeout_s"):
        plan_load(replace(load, client=ClientPolicy(client_timeout_s=3.0)), IDS)
    spec = WorkloadSpec(num_prompts=4, num_turns=2)
    with pytest.raises(UserError, match="max_concurrency"):
        plan_load(replace(build_workload(spec), max_concurrency=1), IDS)


def test_priorities_go_with_their_requests() -> None:
    load = replace(workload([(), ()], own=[4, 4]), priority=np.array([2, 1]))
    assert plan_load(load, IDS, warmup=1).priority == (0, 2, 1)
