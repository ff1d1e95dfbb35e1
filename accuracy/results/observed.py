"""What ``dynosim verify`` saw of every request: one JSON, times in seconds.

The statistics are worked out here from the times, by the definitions of :mod:`dynosim.sim.metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynosim.accuracy.results.base import Document, MeasuredRun, optional
from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.quantiles import quantiles

FORMAT = "dynosim_observed"
VERSION = 1
TOOL = "dynosim verify"
_PERCENTILES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_NEARLY_EVEN = 0.01
"""Coefficient of variation of gaps below which arrivals are taken for evenly spaced."""


@dataclass(frozen=True)
class _Answer:
    """A request that got its whole answer; seconds after the start."""

    sent_s: float
    input_tokens: int
    token_s: Sequence[float]

    @property
    def e2el_s(self) -> float:
        return self.token_s[-1] - self.sent_s

    @property
    def ttft_s(self) -> float:
        return self.token_s[0] - self.sent_s


def recognises(document: Document) -> bool:
    """Returns whether this is the tool's file."""
    return FORMAT in document


def read(document: Document, where: str) -> list[MeasuredRun]:
    """Returns the one run of a file. Requests that failed are left out and counted."""
    if document[FORMAT] != VERSION:
        raise UserError(
            f"format {document[FORMAT]!r} of what was observed", where=where, hint="allowed: 1"
        )
    answers, failed = _answers(document, where)
    if not answers:
        raise UserError("no request was answered", where=where)
    answers.sort(key=lambda answer: answer.sent_s)
    cap = optional(document, "max_concurrency")
    is_open = cap is None
    arrival_s = [answer.sent_s - answers[0].sent_s for answer in answers] if is_open else []
    gaps_s = np.diff(arrival_s)
    return [
        MeasuredRun(
            tool=TOOL,
            where=where,
            model=document.get("model"),
            num_prompts=len(answers),
            failed=failed,
            input_tokens=float(np.mean([a.input_tokens for a in answers])),
            output_tokens=float(np.mean([len(a.token_s) for a in answers])),
            request_rate=1.0 / float(gaps_s.mean()) if gaps_s.any() else None,
            burstiness=_burstiness(gaps_s),
            max_concurrency=None if cap is None else int(cap),
            measured=_statistics(answers),
            lengths=tuple((a.input_tokens, len(a.token_s)) for a in answers),
            arrival_s=tuple(arrival_s),
        )
    ]


def _answers(document: Document, where: str) -> tuple[list[_Answer], int]:
    """Returns the answered requests and how many were not."""
    answers, failed = [], 0
    rows = document.get("requests")
    for number, row in enumerate(rows if isinstance(rows, list) else []):
        try:
            if row["error"] is not None:
                failed += 1
                continue
            answers.append(_answer(row))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UserError(
                f"not what was observed of a request: {error!r}",
                where=f"{where}: requests[{number}]",
            ) from None
    return answers, failed


def _answer(row: Mapping[str, Any]) -> _Answer:
    token_s = [float(at_s) for at_s in row["token_s"]]
    answer = _Answer(float(row["sent_s"]), int(row["input_tokens"]), token_s)
    if not math.isfinite(answer.e2el_s) or any(np.diff([answer.sent_s, *token_s]) < 0):
        raise ValueError("its times run backwards")
    return answer


def _statistics(answers: Sequence[_Answer]) -> dict[str, float]:
    several = [a for a in answers if len(a.token_s) > 1]
    values_s = {
        "ttft": np.array([a.ttft_s for a in answers]),
        "tpot": np.array([(a.e2el_s - a.ttft_s) / (len(a.token_s) - 1) for a in several]),
        "itl": _chunk_gaps_s(several),
        "e2el": np.array([a.e2el_s for a in answers]),
    }
    duration_s = max(a.token_s[-1] for a in answers) - min(a.sent_s for a in answers)
    tokens = sum(len(a.token_s) for a in answers)
    rates = {"request_throughput": len(answers), "output_throughput": tokens}
    return {
        **{k: v for name, s in values_s.items() if len(s) for k, v in _in_ms(name, s).items()},
        **{name: count / duration_s for name, count in rates.items() if duration_s > 0},
    }


def _chunk_gaps_s(answers: Sequence[_Answer]) -> FloatArray:
    """Returns the gaps between chunks of all streams; tokens of one chunk have one time."""
    gaps_s = np.concatenate([np.diff(a.token_s) for a in answers] or [np.empty(0)])
    return np.asarray(gaps_s[gaps_s > 0])


def _in_ms(name: str, values_s: FloatArray) -> dict[str, float]:
    values_ms = values_s * 1e3
    at = quantiles(values_ms, list(_PERCENTILES.values())).tolist()
    found = {f"mean_{name}_ms": float(values_ms.mean())}
    return found | {f"{k}_{name}_ms": v for k, v in zip(_PERCENTILES, at, strict=True)}


def _burstiness(gaps_s: FloatArray) -> float:
    """Returns the gamma shape that has the gaps' coefficient of variation."""
    if not gaps_s.any():
        return 1.0
    cv = float(gaps_s.std() / gaps_s.mean())
    return math.inf if cv < _NEARLY_EVEN else cv**-2
