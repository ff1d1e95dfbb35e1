"""``--help`` documents every flag, and every field of the dataclasses is a flag."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from dynosim.field_docs import field_docs
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

USED_BY_SCRIPTS = {
    "--tensor-parallel-size",
    "-tp",
    "--pipeline-parallel-size",
    "-pp",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--max-model-len",
    "--gpu-memory-utilization",
    "--kv-cache-dtype",
    "--kv-cache-memory-bytes",
    "--num-gpu-blocks-override",
    "--block-size",
    "--enable-prefix-caching",
    "--no-enable-prefix-caching",
    "--enable-chunked-prefill",
    "--quantization",
    "--enable-expert-parallel",
    "--replicas",
    "--router",
    "--trace",
    "--trace-format",
    "--rate-scale",
    "--jitter-ticks",
    "--limit",
    "--request-rate",
    "--burstiness",
    "--max-concurrency",
    "--num-prompts",
    "--random-input-len",
    "--isl",
    "--random-output-len",
    "--osl",
    "--random-range-ratio",
    "--seed",
    "--goodput",
    "--json",
    "--requests-jsonl",
    "--quiet",
    "--debug",
}


def flags_in(text: str) -> set[str]:
    """Returns the words of a help text that are flags."""
    return {word for word in text.replace("│", " ").split() if word.startswith("-")}


@pytest.mark.parametrize("kind", [Deployment, WorkloadSpec])
def test_every_field_says_what_it_is(kind: type[Any]) -> None:
    docs = field_docs(kind)
    assert [f.name for f in dataclasses.fields(kind) if not docs.get(f.name)] == []


def test_simulate_has_the_flags_that_scripts_use(dynosim: Callable[..., Any]) -> None:
    answer = dynosim("simulate", "--help")
    assert answer.code == 0
    assert USED_BY_SCRIPTS - flags_in(answer.out) == set()


@pytest.mark.parametrize("kind", [Deployment, WorkloadSpec])
def test_every_field_is_a_flag(kind: type[Any], dynosim: Callable[..., Any]) -> None:
    found = flags_in(dynosim("simulate", "--help").out)
    wanted = {f"--{f.name.replace('_', '-')}" for f in dataclasses.fields(kind)}
    assert wanted - found == set()


def test_search_has_its_flags(dynosim: Callable[..., Any]) -> None:
    wanted = [
        "--space",
        "--output-dir",
        "--n-trials",
        "--timeout",
        "--seed",
        "--workers",
        "--resume",
    ]
    assert set(wanted) - flags_in(dynosim("search", "--help").out) == set()


def test_help_names_every_command(dynosim: Callable[..., Any]) -> None:
    text = dynosim("--help").out
    for command in ("simulate", "search", "memory", "list"):
        assert f" {command} " in text


def test_version(dynosim: Callable[..., Any]) -> None:
    import dynosim as package

    assert dynosim("--version").out.strip() == package.__version__
