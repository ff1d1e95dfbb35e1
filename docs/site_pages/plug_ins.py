"""What is found by name: one module a name, told by its docstring."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from dynosim.hardware_models.registry import own_names
from dynosim.planning.exports.export import targets
from dynosim.search.included import PRESETS, presets
from site_pages.cards import storages_page
from site_pages.markdown import code, fence, sentence, table

KINDS = (
    ("Routers", "dynosim.sim.cluster.routers", "`router: NAME`; [how they compare](../routing.md)"),
    (
        "Autoscalers",
        "dynosim.sim.cluster.autoscalers",
        "`autoscaler: NAME`; [autoscaling](../autoscaling.md)",
    ),
    ("Forecasters", "dynosim.sim.cluster.forecasters", "`autoscaler_forecaster: NAME`"),
    (
        "Balancers of data-parallel ranks",
        "dynosim.sim.cluster.balancers",
        "`load_balance_method: NAME`; [data-parallel ranks](../data-parallel.md)",
    ),
    ("Schedulers", "dynosim.sim.engine.schedulers", "`backend: NAME`"),
    (
        "Ways of starting",
        "dynosim.hardware_models.startup.methods",
        "`startup: NAME`; [starts](../startup.md)",
    ),
    (
        "Trace formats",
        "dynosim.sim.workload.traces",
        "`trace_format: NAME`; by default told from "
        "the file; [import a trace](../import-a-trace.md)",
    ),
    (
        "Result files of benchmarks",
        "dynosim.accuracy.results",
        "read by `calibrate fit` and `compare`",
    ),
    (
        "Places to measure",
        "dynosim.verification.targets",
        "`dynosim verify --target NAME`; [verify on hardware](../verification.md)",
    ),
    ("Measured sets", "dynosim.accuracy.sets", "`dynosim validate --set NAME`"),
)


def plug_ins_page() -> str:
    """Returns the reference of everything that is found by name."""
    sections = [_kind(title, package, use) for title, package, use in KINDS]
    return (
        "# Plug-ins\n\n"
        "Each name is one module of the package named beside it, and an outside package adds one\n"
        "through an entry point of the group of that name ([how](../extend.md)).\n\n"
        + "\n".join(sections)
        + f"\n{_exports()}\n{_presets()}"
    )


def catalogue_pages() -> dict[str, str]:
    """Returns the pages of things found by name, by their place in the site."""
    return {"reference/plug-ins.md": plug_ins_page(), "reference/storages.md": storages_page()}


def modules(package: str) -> list[tuple[str, ModuleType]]:
    """Returns (name, module) of everything registered in a package of dynosim's own."""
    return [(n, importlib.import_module(f"{package}.{n}")) for n in sorted(own_names(package))]


def about(module: ModuleType) -> str:
    """Returns a module's first paragraph."""
    return sentence(inspect.getdoc(module) or "")


def _kind(title: str, package: str, use: str) -> str:
    found = modules(package)
    is_optioned = any(hasattr(module, "OPTIONS") for _, module in found)
    header: Sequence[str] = ("name", "what it does", *(["options"] if is_optioned else []))
    rows = [
        [code(name), about(module), *([_options(module)] if is_optioned else [])]
        for name, module in found
    ]
    return f"## {title}\n\n{use}. Package `{package}`.\n\n{table(header, rows)}"


def _options(module: ModuleType) -> str:
    return ", ".join(map(code, getattr(module, "OPTIONS", ())))


def _exports() -> str:
    rows = []
    for name in targets():
        module = importlib.import_module(f"dynosim.planning.exports.{name.replace('-', '_')}")
        rows.append((code(name), about(module)))
    return f"## Targets of `dynosim export`\n\n{table(('target', 'what it writes'), rows)}"


def _presets() -> str:
    texts = [f"### {n}\n\n{fence(_preset(n), 'yaml')}" for n in presets()]
    return "## Presets of a search\n\n`preset: NAME` in a space.\n\n" + "\n".join(texts)


def _preset(name: str) -> str:
    return Path(PRESETS / f"{name}.yaml").read_text(encoding="utf-8")
