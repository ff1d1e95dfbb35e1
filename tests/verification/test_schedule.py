"""Rounds: every pick once before any a second time."""

from __future__ import annotations

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.verification.choice import Pick
from dynosim.verification.schedule import rounds, stretches
from stand_ins import trial

A, B, C = (Pick(trial=trial(n, 1.0, 1.0), reason="") for n in (1, 2, 3))


def test_repeats_are_interleaved() -> None:
    turns = rounds([A, B, C], 2)
    assert [(t.pick.number, t.repeat) for t in turns] == [
        (1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (3, 2),
    ]  # fmt: skip
    assert turns[4].name == "trial-0002-repeat-2"


def test_an_engine_that_is_needed_again_at_once_stays_up() -> None:
    assert [len(s) for s in stretches(rounds([A, B], 3))] == [1] * 6
    assert [len(s) for s in stretches(rounds([A], 3))] == [3]


def test_no_repeats() -> None:
    with pytest.raises(UserError, match="--repeats"):
        rounds([A], 0)
