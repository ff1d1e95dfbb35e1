"""Flags made from dataclass fields: a field is written once and is a file's key and a flag.

``tensor_parallel_size`` of a deployment is ``tensor_parallel_size:`` in a file and
``--tensor-parallel-size`` (or ``--tensor_parallel_size``, or ``-tp``) on the command line; the
text below the field is its help. A flag that is not given is absent, so that flags override a
file and leave the rest of it alone.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from cyclopts import Group, Parameter

from dynosim.field_docs import field_docs
from dynosim.search.field_type import field_types, members
from dynosim.sim.workload.spec import ALIASES

Command = TypeVar("Command", bound=Callable[..., None])

SHORT = {
    "tensor_parallel_size": ("-tp",),
    "pipeline_parallel_size": ("-pp",),
    "data_parallel_size": ("-dp",),
}

UNITS = {letter: 1000**power for power, letter in enumerate("kmgt", 1)} | {
    letter: 1024**power for power, letter in enumerate("KMGT", 1)
}
"""Factors of vLLM's short numbers (engine arguments, docs.vllm.ai): 32k is 32,000, 32K 32,768."""

Debug = Annotated[
    bool,
    Parameter(negative=(), show_default=False, help="Show the traceback of an internal error."),
]
Json = Annotated[
    bool,
    Parameter(name="--json", negative=(), show_default=False, help="Print JSON."),
]
Quiet = Annotated[
    bool, Parameter(negative=(), show_default=False, help="Print results and errors only.")
]


def takes_fields_of(**kinds: type[Any]) -> Callable[[Command], Command]:
    """Returns a decorator that gives a command one flag for each field of the dataclasses.

    The command takes them as ``**flags``; each keyword heads a group of ``--help`` (``_`` stands
    for a space).
    """

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        made = [
            parameter
            for order, (heading, kind) in enumerate(kinds.items())
            for parameter in _parameters(kind, Group(heading.replace("_", " "), sort_key=order))
        ]
        command.__signature__ = signature.replace(parameters=[*own, *made])  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in (*own, *made)}
        return command

    return decorate


def _parameters(kind: Any, group: Group) -> list[inspect.Parameter]:
    types, docs = field_types(kind), field_docs(kind)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=_annotation(field, types[field.name], docs.get(field.name, ""), group),
        )
        for field in dataclasses.fields(kind)
    ]


def _annotation(field: dataclasses.Field[Any], hint: Any, text: str, group: Group) -> Any:
    is_switch = set(members(hint)) - {type(None)} == {bool}
    if field.default not in (None, dataclasses.MISSING):
        default = str(field.default).lower() if is_switch else field.default
        text = f"{text} [default: {default}]"
    long = tuple(f"--{a.replace('_', '-')}" for a, name in ALIASES.items() if name == field.name)
    parameter = Parameter(
        alias=(*SHORT.get(field.name, ()), *long),
        group=group,
        help=text,
        metavar=None if is_switch else _metavar(hint),
    )
    return Annotated[bool | None if is_switch else str | None, parameter]


def _metavar(hint: Any) -> str:
    names = {int: "INT", float: "NUMBER", str: "TEXT"}
    words = []
    for kind in members(hint):
        if typing.get_origin(kind) is Literal:
            words.append("|".join(str(choice) for choice in typing.get_args(kind)))
        elif kind is not type(None):
            words.append(names.get(kind, str(kind)))
    return "|".join(words)


def given(flags: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """Returns the flags that were given and are fields of ``kind``, as a file would hold them."""
    return {
        name: _value(flags[name], hint)
        for name, hint in field_types(kind).items()
        if flags.get(name) is not None
    }


def _value(text: Any, hint: Any) -> Any:
    """Returns a flag's text as the number it must be; what is none stays text and is refused."""
    kinds = members(hint)
    if not isinstance(text, str) or str in kinds:
        return text
    if int in kinds and (match := re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtKMGT])", text)):
        scaled = float(match[1]) * UNITS[match[2]]
        return int(scaled) if scaled.is_integer() else text
    for number in (int, float):
        if number in kinds:
            try:
                return number(text)
            except ValueError:
                continue
    return text
