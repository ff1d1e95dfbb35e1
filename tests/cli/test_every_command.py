"""What scripts may rely on of every command: --json, --quiet, exit codes, no colour in a pipe."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynosim import cli
from dynosim.hardware_models.measure.ledger import Ledger
from own_steps import write_logs

ENGINE = "--model Qwen/Qwen3-8B --gpu h100 --backend-version 0.19.0"
LOAD = "--isl 100 --osl 10 --num-prompts 10"

CALLS = {
    "simulate": f"simulate {ENGINE} {LOAD}",
    "capacity": f"capacity {ENGINE} {LOAD} --slo tpot:8 ttft:200 --seeds 1",
    "search": "search --space space.yaml --workers 1",
    "inspect": "inspect RUN --trial 1",
    "report": "report RUN",
    "verify": "verify RUN --dry-run",
    "plan": "plan space.yaml --demand 2 --slo ttft:5",
    "explain": "explain a.yaml b.yaml --objective tok-s-per-gpu",
    "compare": "compare RUN:0 RUN:1",
    "export": f"export {ENGINE} --to vllm",
    "validate": "validate --data MEASURED --jobs 1 --sample 2",
    "memory": f"memory {ENGINE}",
    "startup": f"startup {ENGINE} --at-once 2",
    "list": "list gpus h100",
    "calibrate measure": "calibrate measure --budget-s 0 --out measured",
    "calibrate fit": "calibrate fit --deployment a.yaml --from c1.json c2.json --jobs 1",
    "calibrate steps": "calibrate steps --deployment served.yaml --from few.1.gz many.1.gz",
}
"""A quick call of each command; files are those of :func:`folder`."""

SPACE = """
model: Qwen/Qwen3-8B
gpu: h100
backend_version: 0.19.0
tensor_parallel_size: [1, 2]
workload: {isl: 100, osl: 10}
"""
ONE = "model: Qwen/Qwen3-8B\ngpu: h100\nbackend_version: 0.19.0\n"
ORIGIN = {"device": "A chip", "torch": "2.9", "launch": "graph", "dtype": "bfloat16"}
WORKLOAD = "workload: {isl: 100, osl: 10, num_prompts: 10}\n"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that the calls read: a space and its run, two deployments, results, a ledger."""
    from dynosim.search import search

    made = tmp_path_factory.mktemp("calls")
    space = SPACE.replace("osl: 10", "osl: 10, num_prompts: 10, max_concurrency: 2")
    (made / "searched.yaml").write_text(space)
    search(made / "searched.yaml", workers=1, output_dir=made / "run")
    (made / "space.yaml").write_text(SPACE)
    (made / "a.yaml").write_text(ONE + WORKLOAD)
    (made / "b.yaml").write_text(ONE + "enforce_eager: true\n")
    for n in (1, 2):
        words = f"simulate {ENGINE} {LOAD} --max-concurrency {n} --quiet --json {made}/c{n}.json"
        assert cli.run(words.split()) == 0
    write_logs(made, ["few.1.gz", "many.1.gz"])
    (made / "measured").mkdir()
    Ledger.open(made / "measured" / "ledger.jsonl", ORIGIN)
    return made


def words(call: str, folder: Path, checkout: Path) -> list[str]:
    files = {"RUN": folder / "run", "MEASURED": checkout / "tests" / "cli" / "measured"}
    found = []
    for word in call.split():
        head, colon, tail = word.partition(":")
        found.append(f"{files[head]}{colon}{tail}" if head in files else word)
    return [str(folder / w) if re.search(r"\.(yaml|json|gz)$|^measured$", w) else w for w in found]


every_command = pytest.mark.parametrize("name", CALLS)


def test_every_command_is_called_here() -> None:
    grouped = [f"{group} {name}" for group, (_, names) in cli.GROUPS.items() for name in names]
    assert sorted(CALLS) == sorted([*cli.COMMANDS, *grouped])


@every_command
def test_it_has_the_flags_of_all(name: str, dynosim: Callable[..., Any]) -> None:
    text = dynosim(*name.split(), "--help").out
    assert {"--json", "--quiet", "--debug"} <= set(re.findall(r"--[a-z]+", text))


@every_command
def test_json_is_one_document_and_all_there_is_on_stdout(
    name: str, dynosim: Callable[..., Any], folder: Path, checkout: Path
) -> None:
    flag = "--json=-" if name == "simulate" else "--json"
    answer = dynosim(*words(CALLS[name], folder, checkout), flag)
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)
    assert "NaN" not in answer.out


@every_command
def test_quiet_leaves_the_result_and_nothing_else(
    name: str, dynosim: Callable[..., Any], folder: Path, checkout: Path
) -> None:
    answer = dynosim(*words(CALLS[name], folder, checkout), "--quiet")
    assert answer.code == 0
    assert answer.err == ""
    assert answer.out.strip()


@every_command
def test_a_pipe_gets_neither_colour_nor_progress(
    name: str, dynosim: Callable[..., Any], folder: Path, checkout: Path
) -> None:
    answer = dynosim(*words(CALLS[name], folder, checkout))
    assert answer.code == 0
    assert not re.search("[\x1b\r]", answer.out + answer.err)


@every_command
def test_a_mistake_is_told_on_stderr_and_exits_with_2(
    name: str, dynosim: Callable[..., Any], folder: Path, checkout: Path
) -> None:
    answer = dynosim(*words(CALLS[name], folder, checkout), "--quiett")
    assert answer.code == cli.EXIT_USER == 2
    assert answer.out == ""
    assert answer.err.startswith("error: unknown option '--quiett'")
    assert "nearest: --quiet" in answer.err


def test_exit_codes_are_as_documented(checkout: Path) -> None:
    page = (checkout / "docs" / "decisions.md").read_text(encoding="utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", page, flags=re.MULTILINE)}
    codes = {value for name, value in vars(cli).items() if name.startswith("EXIT_")}
    assert documented == codes | {0}
