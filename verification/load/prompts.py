"""Prompts of exact tokens: alike as far as the workload shares blocks, and no token further.

Prefix blocks and what follows them form a tree. Every branch below a node starts with the ids that
number it among its siblings, so that two prompts differ from the first token after what they share;
where a node has more branches than there are ids, from the second or third.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.columns import Workload
from dynosim.verification.load.token_ids import TokenIds

_ROOT = -1
_BLOCK, _OWN, _WARM_UP = range(3)
"""Kinds of branches; with a number, the place that their tokens are drawn for."""


@dataclass(frozen=True, slots=True)
class _Branch:
    """A stretch of a prompt: ``marks`` tell it from its siblings, the rest is drawn for ``at``."""

    at: tuple[int, int]
    marks: tuple[int, ...]
    length: int


class Prompt(Sequence[int]):
    """Token ids that are made when asked for, so that a long plan takes little memory.

    Reading one token makes them all: iterate, or take ``list(prompt)``.
    """

    __slots__ = ("_branches", "_ids", "_length")

    def __init__(self, branches: Sequence[_Branch], ids: TokenIds) -> None:
        self._branches = tuple(branches)
        self._ids = ids
        self._length = sum(branch.length for branch in branches)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        for branch in self._branches:
            yield from branch.marks
            yield from self._ids.drawn(branch.at, branch.length - len(branch.marks))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        return list(self)[index]


def make_prompts(load: Workload, ids: TokenIds, warm_up: Sequence[int] = ()) -> list[Prompt]:
    """Returns prompts of ``warm_up`` lengths that share nothing, then those of the workload.

    Other workloads get other prompts, so that an engine does not know them from the last one.
    Raises UserError where there are too few ids to keep short prompts apart.
    """
    ids = replace(ids, seed=ids.seed << 32 | _checksum(load))
    rows = [[(_ROOT, (_WARM_UP, i), tokens)] for i, tokens in enumerate(warm_up)]
    rows += _rows(load)
    counts = Counter(parent for parent, _ in {(p, at) for row in rows for p, at, _ in row})
    digits = {parent: ids.digits_for(count) for parent, count in counts.items()}
    next_number: Counter[int] = Counter()
    branches: dict[tuple[int, int], _Branch] = {}
    for row in rows:
        for parent, at, length in row:
            if at not in branches:
                marks = ids.digits(next_number[parent], digits[parent])
                next_number[parent] += 1
                branches[at] = _branch(at, marks, length, counts[parent], ids)
    return [Prompt([branches[at] for _, at, _ in row], ids) for row in rows]


def _checksum(load: Workload) -> int:
    columns = (load.input_tokens, load.output_tokens, load.prefix_ids, load.prefix_offsets)
    return zlib.crc32(b"".join(column.tobytes() for column in columns))


def _rows(load: Workload) -> list[list[tuple[int, tuple[int, int], int]]]:
    """Returns, for each request, its branches as (node they start from, place, tokens)."""
    _, dense = np.unique(load.prefix_ids, return_inverse=True)
    nodes: list[int] = dense.reshape(-1).tolist()
    bounds: list[int] = load.prefix_offsets.tolist()
    block = load.prefix_block_tokens
    rows = []
    for i, tokens in enumerate(load.input_tokens.tolist()):
        chain = nodes[bounds[i] : bounds[i + 1]]
        parents = [_ROOT, *chain]
        row = [(p, (_BLOCK, n), block) for p, n in zip(parents, chain, strict=False)]
        if own := tokens - block * len(chain):
            row.append((parents[-1], (_OWN, i), own))
        rows.append(row)
    return rows


def _branch(
    at: tuple[int, int], marks: tuple[int, ...], length: int, siblings: int, ids: TokenIds
) -> _Branch:
    if length < len(marks):
        raise UserError(
            f"{len(ids)} token ids cannot tell {siblings} prompts apart within {length} token(s)",
            where="workload",
            hint="longer prompts, fewer requests or a larger vocabulary",
        )
    return _Branch(at=at, marks=marks, length=length)
