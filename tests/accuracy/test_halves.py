"""Groups are split by their names: nothing else can move one from the fit to its judge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynosim.accuracy.halves import fold_of, half_of


def test_a_group_stays_in_its_half_for_ever():
    # A change here would let earlier fits have seen what now judges them.
    names = ["h100_sxm/vllm/Qwen/Qwen3-32B", "b200_sxm/trtllm/openai/gpt-oss-120b", ""]
    assert [half_of(name) for name in names] == ["held_out", "held_out", "fit"]


@given(st.text(), st.integers(1, 20))
def test_a_fold_is_one_of_k_and_halves_are_two_folds(group, k):
    assert 0 <= fold_of(group, k) < k
    assert (half_of(group) == "fit") == (fold_of(group, 2) == 0)


def test_both_halves_get_about_as_many_groups():
    in_fit = sum(half_of(f"group {i}") == "fit" for i in range(2000))
    assert 900 < in_fit < 1100


def test_there_is_no_fold_without_folds():
    with pytest.raises(ValueError, match="at least 1"):
        fold_of("a", 0)
