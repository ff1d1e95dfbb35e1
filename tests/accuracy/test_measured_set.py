"""Sets are found by name, and a sample of one is the same for everybody."""

import pytest

from dynosim.accuracy.measured_set import MeasuredSet, load_sets
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.registry import find_module, module_names


@pytest.mark.parametrize("name", module_names("dynosim.accuracy.sets"))
def test_every_set_keeps_the_contract(name):
    module = find_module("dynosim.accuracy.sets", "set", name)
    assert module.SOURCES
    assert callable(module.read)
    assert callable(module.dropped)


def test_a_sample_does_not_depend_on_the_order_of_rows(case):
    cases = tuple(case(row=f"f:{i}") for i in range(20))
    there = MeasuredSet(name="made_up", cases=cases, dropped={}).sample(7)
    back = MeasuredSet(name="made_up", cases=cases[::-1], dropped={}).sample(7)
    assert len(there.cases) == 7
    assert {c.row for c in there.cases} == {c.row for c in back.cases}
    assert [c.row for c in there.cases] == sorted(
        (c.row for c in there.cases), key=lambda row: int(row[2:])
    )


def test_a_sample_larger_than_the_set_is_the_set(case):
    whole = MeasuredSet(name="made_up", cases=(case(),), dropped={})
    assert whole.sample(5) is whole


def test_an_unknown_set_is_told_with_the_nearest(tmp_path):
    with pytest.raises(UserError, match="nearest: silicon"):
        load_sets(tmp_path, ["silicom"])


def test_a_named_set_without_its_sources_says_which(tmp_path):
    with pytest.raises(UserError, match=r"inferencemax_aic_silicon.csv.gz in"):
        load_sets(tmp_path, ["silicon"])


def test_a_folder_without_any_set_is_no_answer(tmp_path):
    with pytest.raises(UserError, match="no measured set in"):
        load_sets(tmp_path)


def test_without_folder_and_package_the_user_learns_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'dynosim\[validate\]'"):
        load_sets(None)
