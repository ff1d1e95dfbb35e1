"""Keys and addresses with passwords are in no file and on no screen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dynosim.search.saved_run import load_run
from dynosim.verification.load.limits import Limits
from dynosim.verification.targets import url
from servers import Engine, served

KEY = "sk-do-not-tell-0123"


def test_a_key_reaches_the_server_and_nothing_else(
    run: Path, dynosim: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(url, "Limits", partial(Limits, max_lag_share=1e3))
    monkeypatch.setenv("MY_KEY", KEY)
    knee = load_run(run).result.knee
    assert knee is not None
    engine = Engine(models=(knee.deployment.model,), ttft_s=0.005, tpot_s=0.001)
    with served(engine) as address:
        answer = dynosim(
            *("verify", run, "--url", address, "--api-key-env", "MY_KEY", "--debug"),
            *("--num-prompts", "6", "--repeats", "2", "--warmup", "1", "--rescore", "none"),
        )
    assert answer.code == 0, answer.err
    assert {h["authorization"] for h in engine.headers} == {f"Bearer {KEY}"}
    assert KEY not in answer.out + answer.err
    files = [p for p in (run / "verification").rglob("*") if p.is_file()]
    assert len(files) >= 6
    for file in files:
        assert KEY.encode() not in file.read_bytes(), file.name
        assert address.encode() not in file.read_bytes(), file.name


def test_an_address_with_a_password_is_refused_without_repeating_it(
    run: Path, dynosim: Callable[..., Any]
) -> None:
    address = f"http://me:{KEY}@localhost:8000/v1?token={KEY}"
    answer = dynosim("verify", run, "--url", address)
    assert answer.code == 2
    assert KEY not in answer.out + answer.err
    assert not (run / "verification").exists()


def test_an_engine_that_is_up_runs_one_trial(run: Path, dynosim: Callable[..., Any]) -> None:
    answer = dynosim("verify", run, "--url", "http://localhost:8000", "--top", "2")
    assert answer.code == 2
    assert "an engine that is up runs one trial" in answer.err
