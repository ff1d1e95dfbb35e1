"""The functions and classes that a notebook calls, from their own signatures and docstrings."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from typing import Any

from site_pages.markdown import fence

PUBLIC = (
    ("Simulate", ("dynosim.sim.deployment:Deployment", "dynosim.sim.workload.spec:WorkloadSpec",
                  "dynosim.sim.workload.build:build_workload", "dynosim.sim.simulate:simulate",
                  "dynosim.sim.simulate:Simulation", "dynosim.sim.metrics:summarize",
                  "dynosim.sim.metrics:request_latencies_s",
                  "dynosim.sim.bottleneck.report:bottleneck",
                  "dynosim.sim.bottleneck.what_if:what_if",
                  "dynosim.sim.result_files:bench_document")),
    ("Search", ("dynosim.search.space:load_space", "dynosim.search.space:parse_space",
                "dynosim.search.space:SearchSpace", "dynosim.search.study:search",
                "dynosim.search.result:SearchResult", "dynosim.search.rehearsal:dry_run")),
    ("Decide", ("dynosim.planning.capacity:find_capacity", "dynosim.planning.ablation:ablate",
                "dynosim.planning.fleet_plan:plan_fleets", "dynosim.planning.demand:read_demand",
                "dynosim.planning.comparison:read_result", "dynosim.planning.comparison:compare",
                "dynosim.planning.exports.export:export")),
    ("Hardware", ("dynosim.hardware_models.gpus:get_gpu", "dynosim.hardware_models.gpus:Gpu",
                  "dynosim.hardware_models.llm.catalog:get_model",
                  "dynosim.hardware_models.backends:get_backend",
                  "dynosim.hardware_models.resolve:resolve_engine",
                  "dynosim.hardware_models.memory.plan:plan_memory",
                  "dynosim.hardware_models.memory.plan:MemoryPlan",
                  "dynosim.hardware_models.timing.step_timer:StepTimer",
                  "dynosim.hardware_models.startup.plan:plan_startup")),
    ("Errors and accuracy", ("dynosim.accuracy.expectation:expect",
                             "dynosim.hardware_models.errors:UserError",
                             "dynosim.hardware_models.errors:InputErrors")),
)  # fmt: skip
"""Titles, and ``module:name`` of what stands below them."""

MOST_FIELDS = 25


def api_page() -> str:
    """Returns the reference of the Python API."""
    parts = [
        f"## {title}\n\n" + "\n".join(_entry(place) for place in places) for title, places in PUBLIC
    ]
    return (
        "# Python API\n\n"
        "Every command is one call of these. Values that cross borders are frozen dataclasses;\n"
        "errors that a user can cause are `UserError`. Whatever is not listed here may change\n"
        "from one version to the next.\n\n" + "\n".join(parts)
    )


def found(place: str) -> Any:
    """Returns what ``module:name`` names."""
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)


def _entry(place: str) -> str:
    module, name = place.split(":")
    thing = found(place)
    text = f"### {name}\n\n`from {module} import {name}`\n"
    if inspect.isfunction(thing):
        text += f"\n{fence(_signature(name, thing), 'python')}"
    text += f"\n{as_markdown(inspect.getdoc(thing) or '')}\n"
    return text + _fields(thing) + _members(thing)


def _fields(thing: Any) -> str:
    """Returns the fields of a dataclass that its docstring speaks of; those of many have a page."""
    if not dataclasses.is_dataclass(thing) or len(dataclasses.fields(thing)) > MOST_FIELDS:
        return ""
    return "\nFields: " + ", ".join(f"`{f.name}`" for f in dataclasses.fields(thing)) + ".\n"


def _members(thing: Any) -> str:
    """Returns the public methods and properties of a class that stand in the class itself."""
    if not inspect.isclass(thing) or issubclass(thing, BaseException):
        return ""
    lines = []
    for name, member in vars(thing).items():
        plain = getattr(member, "fget", None) or getattr(member, "func", None) or member
        if isinstance(member, classmethod | staticmethod):
            plain = member.__func__
        if name.startswith("_") or not inspect.isfunction(plain):
            continue
        call = "" if plain is not member and not isinstance(member, classmethod) else "(…)"
        lines.append(
            f"- `{name}{call}`: {' '.join(as_markdown(inspect.getdoc(plain) or '').split())}"
        )
    return "\n" + "\n".join(lines) + "\n" if lines else ""


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    returned = signature.return_annotation
    tail = "" if returned is inspect.Signature.empty else f" -> {returned}"
    parameters = _parameters(signature)
    line = f"{name}({', '.join(parameters)}){tail}"
    if len(line) <= 88:
        return line
    return f"{name}(\n    " + ",\n    ".join(parameters) + f",\n){tail}"


def _parameters(signature: inspect.Signature) -> list[str]:
    """Returns the parameters one by one, with the bare star before those that need a keyword."""
    shown, is_starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not is_starred:
            shown.append("*")
            is_starred = True
        default = parameter.default
        tail = "" if default is parameter.empty else f" = {default!r}"
        shown.append(f"{parameter.name}: {parameter.annotation}{tail}")
    return shown


def as_markdown(docstring: str) -> str:
    """Returns a docstring with Sphinx's marks as Markdown's."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", docstring)
    return text.replace("``", "`")
