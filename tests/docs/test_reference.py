"""The pages written from the code have every field, flag, metric, column and card."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dynosim.cli import COMMANDS
from dynosim.hardware_models.backends import list_backends
from dynosim.hardware_models.gpus import list_gpus
from dynosim.hardware_models.llm.catalog import list_models
from dynosim.search.metric import METRICS, STATISTICS
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec
from site_pages.api import PUBLIC, found
from site_pages.cards import backends_page, gpus_page, models_page
from site_pages.commands import commands_page
from site_pages.examples import examples_page
from site_pages.fields import deployment_page, space_page, workload_page
from site_pages.links import rewritten
from site_pages.meanings import explained
from site_pages.metrics import all_metrics, metrics_page
from site_pages.outputs import files_page
from site_pages.plug_ins import KINDS, modules, plug_ins_page
from site_pages.units import unit


@pytest.mark.parametrize(
    ("kind", "page"), [(Deployment, deployment_page), (WorkloadSpec, workload_page)]
)
def test_every_field_stands_once_with_type_and_meaning(kind: type, page: object) -> None:
    assert callable(page)
    text = page().replace("<wbr>", "").replace("</code>", "`").replace("<code>", "`")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for field in dataclasses.fields(kind):
        row = [
            line for line in rows if line.startswith(f"| `{field.name}`") and line.count("|") > 4
        ]
        assert len(row) == 1, field.name
        cells = [cell.strip() for cell in row[0].strip("|").split(" | ")]
        assert all(cells[i] for i in (0, 1, 2, 3, 4)), row


def test_every_command_has_its_flags() -> None:
    text = commands_page()
    assert [name for name in COMMANDS if f"\n## {name}\n" not in text] == []
    for flag in ("--goodput", "--what-if", "--space", "--demand-curve", "--to", "--at-once"):
        assert f"`{flag}`" in text


def test_a_space_s_own_keys_are_told() -> None:
    text = space_page().replace("<wbr>", "")
    for key in ("objectives", "slos", "constraints", "when", "require", "max_gpus", "preset"):
        assert f"| <code>{key}</code> |" in text


def test_every_metric_of_a_run_and_of_a_search_is_defined() -> None:
    text = metrics_page()
    for name in {**all_metrics(), **METRICS}:
        kind = next((name[len(s) + 1 : -3] for s in STATISTICS if name.startswith(f"{s}_")), "")
        assert f"| `{name}` |" in text or f"| `{kind}` |" in text, name


def test_a_name_without_a_meaning_ends_the_build() -> None:
    with pytest.raises(KeyError, match="no meaning for nonsense"):
        explained("metrics", ["duration", "nonsense"])


def test_output_files_have_their_columns() -> None:
    text = files_page()
    for name in ("frontier.csv", "report.html", "on_frontier", "ttft_ms", "kv_cache_tokens"):
        assert f"`{name}`" in text


def test_cards_stand_with_values_and_sources() -> None:
    gpus, backends, models = gpus_page(), backends_page(), models_page()
    assert all(f"\n## {name}\n" in gpus for name in list_gpus())
    assert all(f"\n## {name}\n" in backends for name in list_backends())
    assert all(f"| `{name}` |" in models for name in list_models())
    assert "https://" in gpus


def test_every_plug_in_has_a_sentence() -> None:
    text = plug_ins_page()
    for _, package, _ in KINDS:
        for name, module in modules(package):
            assert module.__doc__, name
            assert f"| `{name}` |" in text


def test_the_python_api_is_documented() -> None:
    for _, places in PUBLIC:
        for place in places:
            assert found(place).__doc__, place


def test_every_example_is_shown(checkout: Path) -> None:
    text = examples_page(checkout)
    missing = [p.name for p in checkout.glob("examples/*/*.yaml") if f"### {p.name} " not in text]
    assert missing == []


@pytest.mark.parametrize(
    ("written", "in_the_site"),
    [
        ("[a](search.md#x)", "[a](search.md#x)"),
        ("[a](../examples/plan/day.csv)", "[a](reference/examples.md#plan-day-csv)"),
        ("[a](../ARCHITECTURE.md)", "[a](project/architecture.md)"),
        ("[a](../LICENSE)", "a (`LICENSE`)"),
        ("[a](https://x.org)", "[a](https://x.org)"),
        ("```\n[a](../LICENSE)\n```", "```\n[a](../LICENSE)\n```"),
    ],
)
def test_links_out_of_docs_lead_to_copies(written: str, in_the_site: str) -> None:
    pages = {"search.md", "project/architecture.md", "reference/examples.md"}
    assert rewritten(written, "page.md", "docs/page.md", pages) == in_the_site


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("p99_ttft_ms", "ms"),
        ("output_tok_s_per_gpu", "tok/s/GPU"),
        ("kv_transfer_bandwidth_gb_s", "GB/s"),
        ("usd_per_million_output_tokens", "USD per million output tokens"),
        ("router", "–"),
    ],
)
def test_names_carry_their_units(name: str, expected: str) -> None:
    assert unit(name) == expected
