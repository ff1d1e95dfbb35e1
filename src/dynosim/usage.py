"""Mistakes in the command line itself, told the same way as mistakes in a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cyclopts import CycloptsError
from cyclopts.exceptions import (
    CoercionError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from dynosim.hardware_models.errors import UserError
from dynosim.search.field_type import describe


def usage_error(error: CycloptsError, commands: Sequence[str]) -> UserError:
    """Returns a parser's error as a UserError: the flag, what was found, what is allowed."""
    command = " ".join(error.command_chain or ())
    see_help = f"see `dynosim {command} --help`" if command else "see `dynosim --help`"
    tokens = error.unused_tokens or []
    if isinstance(error, UnknownCommandError) and tokens:
        return _unknown("command", tokens[0], commands, see_help)
    if isinstance(error, UnknownOptionError):
        flag = (error.token.keyword or error.token.value).split("=", 1)[0]
        known = {n for a in error.argument_collection for n in a.names if n.startswith("--")}
        return _unknown("option", flag, sorted(known), see_help)
    if isinstance(error, UnusedCliTokensError) and tokens:
        return UserError(f"unexpected argument {tokens[0]!r}", hint=see_help)
    name = error.argument.name if error.argument is not None else command
    if isinstance(error, RepeatArgumentError):
        return UserError("given more than once", where=name, hint="allowed: once")
    if isinstance(error, MissingArgumentError):
        problem = "needs a value" if error.keyword else "is missing"
        return UserError(problem, where=name, hint=_allowed(error) or see_help)
    if isinstance(error, CoercionError) and error.token is not None:
        return UserError(f"found {error.token.value!r}", where=name, hint=_allowed(error))
    error.verbose = False
    return UserError(str(error), hint=see_help)


def _allowed(error: CycloptsError) -> str:
    """Returns what the parameter takes, in words; empty where that is not known."""
    if error.argument is None:
        return ""
    choices = error.argument.get_choices(force=True)
    if choices:
        return f"allowed: {', '.join(choices)}"
    in_words = describe(error.argument.hint).removesuffix(" or null")
    is_number = any(word in in_words for word in ("number", "true"))
    return f"allowed: {in_words if is_number else error.argument.parameter.metavar or in_words}"


def _unknown(kind: str, found: str, known: Iterable[str], see_help: str) -> UserError:
    names = list(known)
    import difflib

    near = difflib.get_close_matches(found.replace("_", "-"), names, n=3, cutoff=0.5)
    hints = [f"nearest: {', '.join(near)}"] if near else []
    hints += [f"allowed: {', '.join(names)}", see_help]
    return UserError(f"unknown {kind} {found!r}", hint="\n  ".join(hints))
