"""Three counts of users agree with Little's law."""

from __future__ import annotations

import pytest

from dynosim.planning.load import Load
from dynosim.planning.users import users_of


def test_ten_requests_a_second_that_stay_two_seconds() -> None:
    users = users_of(Load(kind="rate", size=10.0), 2.0, 30.0)
    assert (users.in_flight, users.requests_s, users.clients) == (20.0, 10.0, 320.0)


def test_clients_who_never_think_are_those_in_flight() -> None:
    users = users_of(Load(kind="concurrency", size=12), 1.5, 0.0)
    assert users.clients == pytest.approx(users.in_flight) == 12
    assert users.requests_s == pytest.approx(8.0)
