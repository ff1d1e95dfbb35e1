"""Expressions over the fields of a deployment: ``tensor_parallel_size * replicas <= 16``.

Python's grammar, of which comparisons, ``and``, ``or``, ``not``, ``in`` and arithmetic are allowed.
Nothing is ever executed: the syntax tree is walked.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.search.field_type import check, field_types, nearest
from dynosim.search.known_names import meaning
from dynosim.search.source import KeyPath, Source
from dynosim.sim.deployment import Deployment

ALIASES = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "gpus": "num_gpus",
}
"""Short names of fields."""

COUNTS = ("num_gpus", "gpus_per_replica")
"""What an expression may name beside the fields of a deployment."""

MAX_LENGTH = 500

_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
}
_ALLOWED = "allowed: fields, numbers, text in quotes, + - * / // %, comparisons, in, and, or, not"

_Part = Callable[[Deployment], Any]


@dataclass(frozen=True)
class Expression:
    """A condition on a deployment, as it was written; ``names`` are the fields that it reads."""

    text: str
    where: str = field(compare=False)
    names: frozenset[str] = field(compare=False)
    _value: _Part = field(compare=False, repr=False)

    def holds(self, deployment: Deployment) -> bool:
        """Whether the deployment fulfils it; raises UserError where a value has no such operation.

        A field that is null has no size: ``max_num_seqs <= 64`` needs a number to judge.
        """
        try:
            return bool(self._value(deployment))
        except (TypeError, ZeroDivisionError) as error:
            values = {n: getattr(deployment, n) for n in sorted(self.names)}
            found = ", ".join(f"{n} = {_spelled(v)}" for n, v in values.items())
            raise UserError(
                f"cannot be judged where {found} ({error})",
                where=self.where,
                hint="ask `is null` first, or give the field values",
            ) from None

    def __str__(self) -> str:
        return self.text


def parse_expression(text: object, path: KeyPath, source: Source) -> Expression:
    """Returns the expression written at ``path``; UserError says what is wrong with it."""
    if not isinstance(text, str) or not 0 < len(text) <= MAX_LENGTH:
        raise source.error(
            path, f"found {text!r}", "allowed: text such as tensor_parallel_size * replicas <= 16"
        )
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError) as error:
        problem = error.msg if isinstance(error, SyntaxError) else str(error)
        raise source.error(path, f"not an expression: {text!r} ({problem})", _ALLOWED) from None
    compiler = _Compiler(path, source)
    value = compiler.part(tree.body)
    return Expression(text.strip(), source.where(path), frozenset(compiler.names), value)


class _Compiler:
    """Turns syntax into functions of a deployment, and notes the fields that they read."""

    def __init__(self, path: KeyPath, source: Source) -> None:
        self._path, self._source = path, source
        self._fields = field_types(Deployment)
        self.names: set[str] = set()

    def part(self, node: ast.expr) -> _Part:
        """Returns the value of a node as a function."""
        match node:
            case ast.BoolOp(op=ast.And(), values=values):
                parts = [self.part(v) for v in values]
                return lambda d: all(p(d) for p in parts)
            case ast.BoolOp(op=ast.Or(), values=values):
                parts = [self.part(v) for v in values]
                return lambda d: any(p(d) for p in parts)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.part(operand)
                return lambda d: not inner(d)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.part(operand)
                return lambda d: -_number(inner(d))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return self._arithmetic(_ARITHMETIC[type(op)], left, right)
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._comparisons([left, *others], ops)
            case ast.Name(id=name):
                return self._name(name)
            case ast.Constant(value=int() | float() | str() | None as value):
                return lambda d: value
            case ast.Tuple(elts=items) | ast.List(elts=items):
                parts = [self.part(i) for i in items]
                return lambda d: tuple(p(d) for p in parts)
        raise self._error(f"`{ast.unparse(node)}` is not allowed here", _ALLOWED)

    def _arithmetic(
        self, compute: Callable[[Any, Any], Any], left: ast.expr, right: ast.expr
    ) -> _Part:
        one, two = self.part(left), self.part(right)
        return lambda d: compute(_number(one(d)), _number(two(d)))

    def _name(self, name: str) -> _Part:
        if name.lower() in _CONSTANTS:
            value = _CONSTANTS[name.lower()]
            return lambda d: value
        field_name = ALIASES.get(name.lower(), name.lower())
        known = (*self._fields, *COUNTS)
        if field_name not in known:
            close = nearest(name, (*known, *ALIASES))
            hint = f"nearest: {', '.join(close)}; " if close else ""
            raise self._error(f"unknown field {name!r}", f"{hint}text stands in quotes")
        self.names.add(field_name)
        return operator.attrgetter(field_name)

    def _comparisons(self, nodes: list[ast.expr], ops: list[ast.cmpop]) -> _Part:
        """Returns a chain such as ``1 < tp <= 8``."""
        parts = [
            self._comparison(left, op, right)
            for left, op, right in zip(nodes, ops, nodes[1:], strict=False)
        ]
        return lambda d: all(p(d) for p in parts)

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> _Part:
        compare = _COMPARISONS[type(op)]
        one, two = self.part(left), self.part(right)
        name = self._field_of(left) or self._field_of(right)
        if name is None or name in COUNTS:
            return lambda d: compare(one(d), two(d))
        # Two spellings of one GPU are the same GPU; a misspelt one would never be equal.
        for constant in (*_constants(left), *_constants(right)):
            self._check(name, constant)
        return lambda d: compare(_meaning(name, one(d)), _meaning(name, two(d)))

    def _field_of(self, node: ast.expr) -> str | None:
        if not isinstance(node, ast.Name) or node.id.lower() in _CONSTANTS:
            return None
        return ALIASES.get(node.id.lower(), node.id.lower())

    def _check(self, name: str, value: object) -> None:
        """Raises UserError where a field can never have the value that it is compared with."""
        if not isinstance(value, str):
            return
        problem = check(self._fields[name], value, self._path, self._source)
        if problem is not None:
            raise problem
        try:
            meaning(name, value)
        except UserError as error:
            raise self._error(error.message, error.hint) from None

    def _error(self, message: str, hint: str) -> UserError:
        return self._source.error(self._path, message, hint)


def _constants(node: ast.expr) -> list[object]:
    if isinstance(node, ast.Constant):
        return [node.value]
    if isinstance(node, ast.Tuple | ast.List):
        return [i.value for i in node.elts if isinstance(i, ast.Constant)]
    return []


def _meaning(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_meaning(name, v) for v in value)
    return meaning(name, value) if isinstance(value, str) else value


def _number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise TypeError(f"{_spelled(value)} is no number")
    return value


def _spelled(value: object) -> str:
    return "null" if value is None else repr(value)
