"""Flags made from dataclass fields: a field is written once and is a file's key and a flag.

``tensor_parallel_size`` of a deployment is ``tensor_parallel_size:`` in a file and
``--tensor-parallel-size`` (or ``--tensor_parallel_size``, or ``-tp``) on the command line. A flag
that is not given is absent, so that flags override a file and leave the rest of it alone; its
text passes the same border as the file (:mod:`dynosim.border`).
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from cyclopts import Group, Parameter

from dynosim.border import describe, members
from dynosim.flag_texts import ALIASES, HELP

Command = TypeVar("Command", bound=Callable[..., None])

DEBUG = Annotated[bool, Parameter(negative=(), help="Show the traceback of an internal error.")]
QUIET = Annotated[bool, Parameter(negative=(), help="Print results and errors only.")]


def takes_fields_of(**kinds: type[Any]) -> Callable[[Command], Command]:
    """Returns a decorator that gives a command one flag a field of each dataclass.

    The command takes them as ``**flags``; the keyword is the group's heading in ``--help``
    (``_`` for a space).
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


def _parameters(kind: type[Any], group: Group) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=_annotation(field, hints[field.name], group),
        )
        for field in dataclasses.fields(kind)
    ]


def _annotation(field: dataclasses.Field[Any], hint: Any, group: Group) -> Any:
    is_switch = members(hint) == (bool,)
    has_default = field.default not in (None, dataclasses.MISSING)
    default = f" [default: {str(field.default).lower() if is_switch else field.default}]"
    parameter = Parameter(
        alias=ALIASES.get(field.name, ()),
        group=group,
        help=HELP[field.name] + (default if has_default else ""),
        metavar=None if is_switch else _metavar(hint),
    )
    return Annotated[bool | None if is_switch else str | None, parameter]


def _metavar(hint: Any) -> str:
    kinds = [m for m in members(hint) if m is not type(None)]
    if len(kinds) == 1 and typing.get_origin(kinds[0]) is typing.Literal:
        return "|".join(str(choice) for choice in typing.get_args(kinds[0]))
    names = {int: "INT", float: "NUMBER", str: "TEXT"}
    return "|".join(names.get(kind, describe(kind).upper()) for kind in kinds)


def given(flags: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Returns the flags that were given and are fields of ``kind``."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {k: v for k, v in flags.items() if k in names and v is not None}
