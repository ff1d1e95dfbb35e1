"""Every command with its own arguments and flags, from the parser itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from cyclopts import App

from dynosim.cli import COMMANDS, GROUPS, build_app
from dynosim.search.field_type import describe
from site_pages.markdown import code, sentence, table
from site_pages.meanings import meanings

SHARED = {"Deployment": "deployment.md", "Workload": "workload.md"}
"""Headings of ``--help`` whose flags are the fields of a dataclass, and the page of these."""


def commands_page() -> str:
    """Returns the reference of the command line."""
    app = build_app()
    parts = [_command(app[name], name, text) for name, text in COMMANDS.items()]
    for group, (_, commands) in GROUPS.items():
        parts += [_command(app[group][n], f"{group} {n}", t) for n, t in commands.items()]
    return (
        "# Commands\n\n"
        "`dynosim COMMAND --help` says the same on the terminal. Flags are written with `-` or\n"
        "`_`; a switch is turned off with `--no-` before its name. Results go to stdout, notes\n"
        "and progress to stderr; `dynosim --install-completion` completes flags in your shell.\n\n"
        f"{_exit_codes()}\n" + "\n".join(parts)
    )


def own_flags(app: App) -> Iterator[Any]:
    """Yields the arguments of a command that are not fields of a dataclass."""
    for argument in app.assemble_argument_collection():
        if _heading(argument) not in SHARED:
            yield argument


def _heading(argument: Any) -> str:
    """Returns the heading of ``--help`` that an argument stands below."""
    return str(argument.parameter.group[0]._name)


def _command(app: App, name: str, purpose: str) -> str:
    assert app.default_command is not None
    about = inspect.getdoc(app.default_command) or purpose
    rows = [_row(argument) for argument in own_flags(app)]
    tail = about.strip().split("\n\n", 1)[1:]
    text = [f"## {name}", sentence(about), *(p.replace("``", "`") for p in tail)]
    return "\n\n".join([*text, table(("argument", "takes", "default", "meaning"), rows)]) + (
        _shared(app)
    )


def _row(argument: Any) -> tuple[str, str, str, str]:
    names = [n for n in argument.names if not n.startswith("--no-")]
    if argument.field_info.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        names = [argument.parameter.metavar or argument.field_info.name.upper(), *names]
    takes = argument.parameter.metavar or _takes(argument.hint)
    return (
        ", ".join(map(code, names)),
        "" if argument.hint is bool else code(takes),
        _default(argument),
        str(argument.parameter.help or "").replace("``", "`"),
    )


def _takes(hint: Any) -> str:
    return describe(hint).removesuffix(" or null").removeprefix("one of ").replace(", ", "|")


def _default(argument: Any) -> str:
    if argument.required:
        return "required"
    default = argument.field_info.default
    is_plain = isinstance(default, int | float | str) and not isinstance(default, bool)
    return code(default) if is_plain else ""


def _shared(app: App) -> str:
    found = set(map(_heading, app.assemble_argument_collection()))
    names = [f"[{name.lower()}]({SHARED[name]})" for name in SHARED if name in found]
    if not names:
        return ""
    fields = " and of the ".join(names)
    return f"\nAnd every field of the {fields} as a flag.\n"


def _exit_codes() -> str:
    rows = [(code(number), meaning) for number, meaning in meanings("exit_codes").items()]
    return f"## Exit codes\n\n{table(('code', 'meaning'), rows)}"
