"""Many spellings, one thing; a near miss is an error with the nearest names."""

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.names import fold, fold_gpu, one_hub_name, spellings

HUB = ("Qwen/Qwen3-32B", "meta-llama/Llama-3.1-8B", "a/Twin-7B", "b/Twin-7B")


def test_case_and_separators_do_not_matter():
    assert fold("Llama-3.1_8B") == fold("llama 3.1 8b")


def test_the_dot_of_a_version_matters():
    assert fold("Llama-3.1-8B") != fold("Llama-31-8B")


def test_vendor_words_do_not_matter_for_gpus():
    assert fold_gpu("NVIDIA GeForce RTX 4090") == fold_gpu("rtx_4090")


def test_one_spelling_for_two_keys_is_a_fault_of_the_data():
    with pytest.raises(ValueError, match="names both"):
        spellings({"h100": ["big"], "h200": ["BIG"]})


@pytest.mark.parametrize("found", ["Qwen/Qwen3-32B", "qwen/qwen3-32b", "Qwen3-32B", "qwen3_32b"])
def test_a_hub_name_is_forgiving(found):
    assert one_hub_name(found, HUB) == "Qwen/Qwen3-32B"


def test_a_bare_name_of_two_models_is_ambiguous():
    with pytest.raises(UserError, match="ambiguous"):
        one_hub_name("twin-7b", HUB)


def test_an_unknown_name_lists_the_nearest():
    with pytest.raises(UserError, match=r"nearest: Qwen/Qwen3-32B"):
        one_hub_name("Qwen/Qwen3-33B", HUB)
