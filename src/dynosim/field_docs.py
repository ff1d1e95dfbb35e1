"""The sentence written under a dataclass field, which Python itself does not keep."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from typing import Any


@cache
def field_docs(cls: type[Any]) -> dict[str, str]:
    """Returns field name -> the text below it in the source, for ``cls`` and its bases.

    Fields without a text are absent; so are all fields of a class whose source is not at hand.
    """
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except OSError:
            continue
        (definition,) = ast.parse(source).body
        assert isinstance(definition, ast.ClassDef)
        for field, after in zip(definition.body, definition.body[1:], strict=False):
            match field, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[name] = " ".join(text.split())
    return docs
