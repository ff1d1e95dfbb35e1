"""Errors that a user can act on: where, what was found, what is allowed, the nearest spelling."""

from __future__ import annotations

from collections.abc import Iterable


class UserError(ValueError):
    """Returns, as text, a problem in the user's input; the CLI prints it and exits with code 2.

    ``where`` is a key path (``pools[0].gpu``) or ``file:line``; ``hint`` says what to do next.
    """

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        self.message = message
        self.where = where
        self.hint = hint
        super().__init__(str(self))

    def __str__(self) -> str:
        head = f"{self.where}: {self.message}" if self.where else self.message
        return f"{head}\n  {self.hint}" if self.hint else head

    def at(self, where: str) -> UserError:
        """Returns the same problem with ``where`` put before its own location."""
        joined = f"{where}: {self.where}" if self.where else where
        return type(self)(self.message, where=joined, hint=self.hint)


class InputErrors(UserError):
    """Returns several problems of one input, so that a user mends them in one go."""

    def __init__(self, errors: list[UserError], *, where: str = "") -> None:
        self.errors = errors
        body = "\n".join(str(e) for e in errors)
        super().__init__(body if not where else f"{len(errors)} problem(s)\n{body}", where=where)

    def at(self, where: str) -> UserError:
        return InputErrors(self.errors, where=where)


def unknown_name(kind: str, found: str, known: Iterable[str], *, where: str = "") -> UserError:
    """Returns the error for a name that is not in ``known``, with the nearest spellings."""
    import difflib

    names = sorted(known)
    near = difflib.get_close_matches(found, names, n=4, cutoff=0.4)
    if not near:
        lowered = {n.lower(): n for n in names}
        near = [lowered[m] for m in difflib.get_close_matches(found.lower(), lowered, 4, 0.3)]
    hint = f"nearest: {', '.join(near)}" if near else ""
    if len(names) <= 16:
        hint = "; ".join(x for x in (hint, f"allowed: {', '.join(names)}") if x)
    else:
        hint = "; ".join(x for x in (hint, f"{len(names)} known: see `dynosim list {kind}s`") if x)
    return UserError(f"unknown {kind} {found!r}", where=where, hint=hint)
