"""Flags made from dataclass fields: a field is written once and is a file's key and a flag.

``tensor_parallel_size`` of a deployment is ``tensor_parallel_size:`` in a file and
``--tensor-parallel-size`` (or ``--tensor_parallel_size``, or ``-tp``) on the command line; the
text below the field is its help. A flag that is not given is absent, so that flags override a
file and leave the rest of it alone.

A parser takes its time over every flag that there is, 0.06 s over those of ``simulate``. Within
:func:`only_those_of` a command line, commands have the flags that are on it, and no help.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from dynosim.field_docs import field_docs
from dynosim.search.field_type import field_types, members
from dynosim.sim.workload.spec import ALIASES

_GIVEN: ContextVar[frozenset[str] | None] = ContextVar("flags that are given", default=None)

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


@contextmanager
def only_those_of(argv: Sequence[str]) -> Iterator[None]:
    """Lets commands have only the flags that occur in a command line."""
    words = (word.partition("=")[0] for word in argv if word.startswith("-"))
    token = _GIVEN.set(frozenset(word.lstrip("-").replace("-", "_") for word in words))
    try:
        yield
    finally:
        _GIVEN.reset(token)


class FlagCommand:
    """A command with flags for the fields of dataclasses; made when a parser asks for them."""

    def __init__(self, command: Callable[..., None], kinds: Mapping[str, type[Any]]) -> None:
        self._command = command
        self._kinds = kinds
        self.__name__, self.__doc__ = command.__name__, command.__doc__
        # A parser reads them beside the signature, which has all that is in them.
        self.__annotations__: dict[str, Any] = {}

    def __call__(self, *args: Any, **flags: Any) -> None:
        """Runs the command."""
        self._command(*args, **flags)

    @property
    def __signature__(self) -> inspect.Signature:
        """The command's own parameters, and one for each field that may be given."""
        signature = inspect.signature(self._command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        made = [
            parameter
            for order, (heading, kind) in enumerate(self._kinds.items())
            for parameter in _parameters(kind, Group(heading.replace("_", " "), sort_key=order))
        ]
        return signature.replace(parameters=[*own, *made])


def takes_fields_of(**kinds: type[Any]) -> Callable[[Callable[..., None]], FlagCommand]:
    """Returns a decorator that gives a command one flag for each field of the dataclasses.

    The command takes them as ``**flags``; each keyword heads a group of ``--help`` (``_`` stands
    for a space).
    """
    return lambda command: FlagCommand(command, kinds)


def _parameters(kind: Any, group: Group) -> list[inspect.Parameter]:
    words, types = _GIVEN.get(), field_types(kind)
    docs = field_docs(kind) if words is None else {}
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=_annotation(field, types[field.name], docs.get(field.name, ""), group),
        )
        for field in dataclasses.fields(kind)
        if words is None or not words.isdisjoint(_spellings(field.name))
    ]


def _spellings(name: str) -> list[str]:
    """Returns the words of a field's flags without dashes in front, ``_`` for those within."""
    short = [flag.lstrip("-") for flag in SHORT.get(name, ())]
    return [name, f"no_{name}", *short, *(a for a, target in ALIASES.items() if target == name)]


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
