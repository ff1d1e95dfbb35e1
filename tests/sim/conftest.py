"""What holds on every run of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dynosim.sim.results import Recorder, RunResult
from littles_law import assert_littles_law


@pytest.fixture(scope="session", autouse=True)
def littles_law_on_every_run() -> Iterator[None]:
    """Has Little's law asserted on the result of every run."""
    finish = Recorder.result

    def checked(recorder: Recorder, *args: Any, **more: Any) -> RunResult:
        result = finish(recorder, *args, **more)
        assert_littles_law(result)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recorder, "result", checked)
        yield
