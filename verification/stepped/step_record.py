"""What is kept of every step: its batch and its cost; and how that is written to files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.verification.stepped.engine import Work

FORMAT = "dynosim step log 1"


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRecord:
    """One step: its batch, what it gave to whom, and what it cost on the virtual clock.

    ``decodes`` compute the token that their answer ended with so far, ``chunks`` anything else: a
    prompt's tokens or, after a preemption, those of prompt and answer together.
    """

    start_s: float
    cost_s: float
    decodes: tuple[Work, ...]
    chunks: tuple[Work, ...]
    new_tokens: Mapping[int, int]
    finished: tuple[int, ...] = ()
    preempted: tuple[int, ...] = ()

    @property
    def chunk_tokens(self) -> int:
        """Tokens of prompts."""
        return sum(work.tokens for work in self.chunks)

    @property
    def tokens(self) -> int:
        """Tokens computed in all, prompts and decodes."""
        return self.chunk_tokens + sum(work.tokens for work in self.decodes)

    @property
    def chunk_attention(self) -> float:
        """Pairs of a prompt's token and one that it attends to, as work of prefill attention."""
        return sum(w.tokens * (w.context_tokens + 0.5 * (w.tokens + 1)) for w in self.chunks)

    @property
    def decode_context_tokens(self) -> int:
        """Tokens that decodes attend to, the new ones among them."""
        return sum(work.context_tokens + work.tokens for work in self.decodes)

    @property
    def did(self) -> tuple[Any, ...]:
        """What the step did but for its time and the order in its batch: for comparing engines."""
        by_request = sorted((w.request, w.tokens, w.context_tokens) for w in self.work)
        ends = sorted(self.finished), sorted(self.preempted)
        return (tuple(by_request), dict(self.new_tokens), *ends)

    @property
    def work(self) -> tuple[Work, ...]:
        """Decodes, then chunks."""
        return self.decodes + self.chunks


def write_step_log(path: Path, steps: Iterable[StepRecord], facts: Mapping[str, Any]) -> None:
    """Writes JSON Lines, gzipped: ``facts`` of the run, then a line a step.

    The same steps give the same bytes.
    """
    lines = [json.dumps({"format": FORMAT, **facts}), *(json.dumps(_row(s)) for s in steps)]
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _row(step: StepRecord) -> list[Any]:
    works = [[[w.request, w.tokens, w.context_tokens] for w in part] for part in _parts(step)]
    tokens = [[request, count] for request, count in step.new_tokens.items()]
    return [step.start_s, step.cost_s, *works, tokens, list(step.finished), list(step.preempted)]


def _parts(step: StepRecord) -> Sequence[tuple[Work, ...]]:
    return step.decodes, step.chunks


def read_step_log(path: Path) -> tuple[dict[str, Any], tuple[StepRecord, ...]]:
    """Returns the facts and the steps of a file; UserError with the line that is none of them."""
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"no step log: {error}", where=str(path)) from error
    head = _parsed(lines[0], path, 1) if lines else None
    if not isinstance(head, dict) or head.pop("format", None) != FORMAT:
        raise UserError(f"no step log: its first line lacks {FORMAT!r}", where=f"{path}:1")
    rows = (_parsed(line, path, number) for number, line in enumerate(lines[1:], 2))
    return head, tuple(_record(row, f"{path}:{number}") for number, row in enumerate(rows, 2))


def _parsed(line: str, path: Path, number: int) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"not JSON: {error.msg}", where=f"{path}:{number}") from error


def _record(row: Any, where: str) -> StepRecord:
    try:
        start_s, cost_s, decodes, chunks, tokens, finished, preempted = row
        return StepRecord(
            start_s=float(start_s),
            cost_s=float(cost_s),
            decodes=tuple(Work(*map(int, work)) for work in decodes),
            chunks=tuple(Work(*map(int, work)) for work in chunks),
            new_tokens={int(request): int(count) for request, count in tokens},
            finished=tuple(map(int, finished)),
            preempted=tuple(map(int, preempted)),
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"no step: {error}", where=where) from error
