"""Every key of a deployment, a workload and a space: type, default, unit, meaning."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from dynosim.field_docs import field_docs
from dynosim.flags import SHORT
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.kv_tiers import KvTierOptions
from dynosim.hardware_models.startup.options import StartupOptions
from dynosim.search.field_type import describe, field_types
from dynosim.search.space import _SECTIONS, _SETTINGS, ALIASES, SearchSpace
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.scaling.options import ScalingOptions
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.client import ClientPolicy
from dynosim.sim.workload.network import NetworkOptions
from dynosim.sim.workload.spec import ALIASES as WORKLOAD_ALIASES
from dynosim.sim.workload.spec import WorkloadSpec
from site_pages.markdown import code, name, sentence, table
from site_pages.meanings import meanings
from site_pages.units import unit

HEADER = ("key", "type", "default", "unit", "meaning")

DEPLOYMENT_PARTS = (
    ("Engine", EngineArgs),
    ("Replicas and prefill pool", Deployment),
    ("Router and admission", RouterOptions),
    ("KV tiers below the GPU", KvTierOptions),
    ("Autoscaling and failures", ScalingOptions),
    ("Starts", StartupOptions),
)
WORKLOAD_PARTS = (
    ("Requests", WorkloadSpec),
    ("Network", NetworkOptions),
    ("Clients that lose patience", ClientPolicy),
)


def deployment_page() -> str:
    """Returns the reference of `Deployment`."""
    return (
        "# Deployment\n\n"
        "One serving deployment: engines, how many of them, and how requests reach them. A field\n"
        "is a key of a YAML file, a flag of the commands (`tensor_parallel_size` is\n"
        "`--tensor-parallel-size`) and a dimension of a search, where it may be a list or range.\n"
        "Default *null* means: the backend's own for its version, or none.\n\n"
        + "\n".join(_sections(DEPLOYMENT_PARTS))
        + f"\n## Other spellings\n\n{_spellings(ALIASES)}"
    )


def workload_page() -> str:
    """Returns the reference of `WorkloadSpec`."""
    return (
        "# Workload\n\n"
        f"{sentence(WorkloadSpec.__doc__ or '')}\n\n"
        "Keys stand under `workload:` in a file; on the command line each is a flag.\n"
        "Which trace formats there are: [Plug-ins](plug-ins.md#trace-formats).\n\n"
        + "\n".join(_sections(WORKLOAD_PARTS))
        + f"\n## Other spellings\n\n{_spellings(WORKLOAD_ALIASES)}"
    )


def space_page() -> str:
    """Returns the reference of a search space's own keys."""
    told = meanings("space")
    hints = {**dict.fromkeys(_SECTIONS, None), **_SETTINGS, "preset": None, "include": None}
    defaults = {f.name: f.default for f in dataclasses.fields(SearchSpace)}
    rows = [
        (
            name(key),
            describe(hint) if hint else told[key]["type"],
            code(default) if (default := _plain(defaults.get(key))) else "–",
            unit(key),
            told[key]["meaning"],
        )
        for key, hint in hints.items()
    ]
    return (
        "# Search space\n\n"
        "A space is a [deployment](deployment.md) in which any field may have many values, and\n"
        "the keys below. [How a search works](../search.md) says what becomes of them.\n\n"
        f"{_fields(rows)}\n"
        "## Values of a field\n\n"
        "| written | means |\n|---|---|\n"
        "| `tensor_parallel_size: 2` | this value |\n"
        "| `tensor_parallel_size: [1, 2, 4]` | each of these |\n"
        "| `router: {options: [round_robin, kv_aware]}` | the same |\n"
        "| `replicas: {min: 1, max: 8, step: 1}` | a range, ends included |\n"
        "| `max_num_seqs: {min: 32, max: 512, log: true}` | powers of two between the ends |\n\n"
        f"## Other spellings\n\n{_spellings(ALIASES)}"
    )


def _sections(parts: tuple[tuple[str, type[Any]], ...]) -> Iterator[str]:
    for title, kind in parts:
        own = _own_fields(kind, parts)
        rows = [_row(kind, field) for field in own]
        yield f"## {title}\n\n{_fields(rows)}"


def _fields(rows: Sequence[Sequence[str]]) -> str:
    """Returns the table of some fields, in a box of its own for the style sheet."""
    return f'<div class="fields" markdown>\n\n{table(HEADER, rows)}\n</div>\n'


def _own_fields(
    kind: type[Any], parts: tuple[tuple[str, type[Any]], ...]
) -> list[dataclasses.Field[Any]]:
    """Returns the fields of a dataclass that none of the other parts shows."""
    bases = {
        f.name
        for _, other in parts
        if other is not kind and issubclass(kind, other)
        for f in dataclasses.fields(other)
    }
    return [f for f in dataclasses.fields(kind) if f.name not in bases]


def _row(kind: Any, field: dataclasses.Field[Any]) -> tuple[str, ...]:
    hint = field_types(kind)[field.name]
    short = "".join(f" `{s}`" for s in SHORT.get(field.name, ()))
    default = "required" if field.default is dataclasses.MISSING else code(_plain(field.default))
    meaning = field_docs(kind)[field.name].replace("``", "`")
    return f"{name(field.name)}{short}", describe(hint), default, unit(field.name), meaning


def _plain(value: object) -> str:
    """Returns a default as YAML has it; nothing for what is no plain value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float | str) else ""


def _spellings(aliases: dict[str, str]) -> str:
    return table(("written", "means"), [(code(a), code(b)) for a, b in aliases.items()])
