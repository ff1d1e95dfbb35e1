"""When TensorRT-LLM's attention-DP ranks let prompts in, as ``_balance_adp_requests`` does."""

from __future__ import annotations

from dynosim.sim.cluster.prompt_balance import PromptBalance, RankState

DECODES = RankState(has_prompt=False, generates=True, has_slot=True)
BOTH = RankState(has_prompt=True, generates=True, has_slot=True)
STARTS = RankState(has_prompt=True, generates=False, has_slot=True)


def test_prompts_go_when_every_rank_has_one() -> None:
    assert PromptBalance(60, 0).steps_to_wait([BOTH, BOTH], 1) == 0


def test_the_prompt_of_one_rank_waits_for_the_others_until_time_is_out() -> None:
    balance = PromptBalance(3, 0)
    held = [balance.steps_to_wait([BOTH, DECODES], 1) for _ in range(6)]
    assert held == [2, 1, 0, 2, 1, 0]


def test_steps_without_prompts_count_too() -> None:
    balance = PromptBalance(10, 0)
    assert balance.steps_to_wait([DECODES, DECODES], 1) == 9
    # Six more steps ran; the tenth comes three after this one.
    assert balance.steps_to_wait([BOTH, DECODES], 6) == 3


def test_nobody_waits_for_a_rank_that_does_not_generate() -> None:
    assert PromptBalance(60, 0).steps_to_wait([STARTS, DECODES], 1) == 0


def test_once_all_have_one_they_may_wait_for_more() -> None:
    balance = PromptBalance(60, 2)
    held = [balance.steps_to_wait([BOTH, BOTH], 1) for _ in range(4)]
    assert held == [2, 1, 0, 2]
