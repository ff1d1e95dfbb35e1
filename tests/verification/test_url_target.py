"""An engine that is already up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.planning.exports.base import Candidate
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.verification.load.limits import Limits
from dynosim.verification.target import Running, TargetOptions
from dynosim.verification.targets import url as target
from loads import plan
from servers import Connection, Engine, read_request, response, served

SERVED = Deployment(model="Qwen/Qwen3-8B", gpu="h100_sxm")


@pytest.fixture(scope="module")
def candidate() -> Candidate:
    return Candidate(
        deployment=SERVED,
        engine=resolve_engine(SERVED),
        workload=WorkloadSpec(),
        goodput_ms={},
        seed=0,
    )


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine any load generator is late."""
    monkeypatch.setattr(target, "Limits", partial(Limits, max_lag_share=float("inf")))


@contextmanager
def running(server: Connection, candidate: Candidate, **options: Any) -> Iterator[Running]:
    with served(server) as address:
        asked = TargetOptions(folder=Path("nowhere"), url=address, **options)
        with target.make(asked).run(candidate) as client:
            yield client


def test_a_model_of_another_name_is_used_and_told(candidate: Candidate) -> None:
    engine = Engine(models=("qwen",))
    with running(engine, candidate) as client:
        run = client.measure(plan(2))
    assert engine.asked[0]["model"] == "qwen"
    assert run.notes[0] == "the server calls its model qwen, the plan Qwen/Qwen3-8B"


@pytest.mark.parametrize("model", [None, "small"])
def test_the_right_model_is_chosen(candidate: Candidate, model: str | None) -> None:
    engine = Engine(models=("small", "Qwen/Qwen3-8B"))
    with running(engine, candidate, model=model) as client:
        run = client.measure(plan(1))
    assert engine.asked[0]["model"] == (model or "Qwen/Qwen3-8B")
    assert not [note for note in run.notes if "calls its model" in note]


@pytest.mark.parametrize(
    ("models", "model", "problem"),
    [
        (("a", "b\x1b[31m"), None, r"no model 'Qwen/Qwen3-8B'\n  it has: a, b \[31m$"),
        (("qwen3",), "qwen", r"the server has no model 'qwen'\n  it has: qwen3"),
    ],
)
def test_a_model_that_is_not_there(
    candidate: Candidate, models: tuple[str, ...], model: str | None, problem: str
) -> None:
    with (
        pytest.raises(UserError, match=problem),
        running(Engine(models=models), candidate, model=model),
    ):
        pass


def test_requests_that_are_too_long_for_it(candidate: Candidate) -> None:
    with (
        running(Engine(models=("m",), max_model_len=7), candidate) as client,
        pytest.raises(UserError, match=r"a request has 8 tokens, the server takes 7 at most"),
    ):
        client.measure(plan(1))


def test_its_counters_become_facts_and_notes(candidate: Candidate) -> None:
    def page(engine: Engine) -> str:
        answered = len(engine.asked)
        return (
            f"vllm:request_success_total {answered + 3 * (answered > 1)}\n"
            f"vllm:num_preemptions_total {answered - 1}\n"
            'vllm:cache_config_info{block_size="32",num_gpu_blocks="64"} 1.0\n'
        )

    engine = Engine(metrics=page)
    with running(engine, candidate) as client:
        run = client.measure(plan(4, warmup=1, cap=4))
    assert run.facts["preemptions"] == 4
    assert run.facts["kv_cache_tokens"] == 2048
    assert "the engine answered 3 requests of others meanwhile" in run.notes
    assert "4 preemptions" in run.notes


def page(status: str, kind: str, body: str, health: str = "404 Not Found") -> Connection:
    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            path, _, _ = await read_request(reader)
            is_models = path == "/v1/models"
            writer.write(response(status if is_models else health, kind, body))

    return connection


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        (page("401 Unauthorized", "text/plain", ""), r"it wants an API key \(--api-key-env"),
        (page("500 Oops", "text/plain", "engine is dead"), "500 Oops from /v1/models: engine is"),
        (page("200 OK", "text/html", "<html>hello"), "/v1/models is text/html and no list"),
        (page("200 OK", "application/json", '{"data": 3}'), "no list of models"),
        (page("404 Not Found", "text/plain", ""), "neither /v1/models nor /health is there"),
        (page("302 Found", "text/plain", ""), "HTTP 302 Found from /v1/models"),
    ],
)
def test_what_is_no_engine_is_told_from_one(
    candidate: Candidate, server: Connection, problem: str
) -> None:
    with pytest.raises(UserError, match=problem) as caught, running(server, candidate):
        pass
    assert "vllm serve MODEL" in str(caught.value)


def test_health_is_enough_where_models_are_not_listed(candidate: Candidate) -> None:
    with running(page("404 Not Found", "text/plain", "", "200 OK"), candidate):
        pass


def test_nobody_is_there(candidate: Candidate) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    options = TargetOptions(folder=Path("nowhere"), url=address)
    with (
        pytest.raises(
            UserError, match=r"no connection: Connection refused.*\n.*is an OpenAI-compatible"
        ),
        target.make(options).run(candidate),
    ):
        pass
    with pytest.raises(UserError, match="where is the engine"):
        target.make(TargetOptions(folder=Path("nowhere")))
