"""How long synthetic prompts and answers are: fixed, uniform, lognormal, or drawn from a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from dynosim.hardware_models.arrays import IntArray
from dynosim.hardware_models.errors import UserError, unknown_name

RangeConvention = Literal["vllm", "inferencex"]


def fixed_lengths(n: int, tokens: int) -> IntArray:
    """Returns ``n`` times ``tokens``."""
    return np.full(n, _whole(tokens), dtype=np.int64)


def uniform_lengths(
    n: int,
    tokens: int,
    range_ratio: float,
    rng: np.random.Generator,
    *,
    convention: RangeConvention = "vllm",
) -> IntArray:
    """Returns ``n`` whole lengths drawn uniformly around or below ``tokens``, both ends included.

    ``vllm``: from floor(L·(1 - r)) to ceil(L·(1 + r)), 0 <= r < 1, so the mean stays L.
    ``inferencex``: from floor(r·L) to L, 0 < r <= 1, so r = 0.8 has a mean of 0.9·L. No length is
    below 1.
    """
    low, high = _bounds(_whole(tokens), range_ratio, convention)
    return rng.integers(max(low, 1), high, size=n, endpoint=True, dtype=np.int64)


def _bounds(tokens: int, ratio: float, convention: RangeConvention) -> tuple[int, int]:
    if convention not in get_args(RangeConvention):
        raise unknown_name("range convention", convention, get_args(RangeConvention))
    vllm = convention == "vllm"
    if not (0 <= ratio < 1 if vllm else 0 < ratio <= 1):
        allowed = "0 <= ratio < 1" if vllm else "0 < ratio <= 1"
        raise UserError(
            f"`random_range_ratio` is {ratio}",
            where="random_range_ratio",
            hint=f"allowed: {allowed} ({convention} convention)",
        )
    if vllm:
        return math.floor(tokens * (1 - ratio)), math.ceil(tokens * (1 + ratio))
    return math.floor(tokens * ratio), tokens


def lognormal_lengths(
    n: int,
    mean: float,
    rng: np.random.Generator,
    *,
    cv: float | None = None,
    sigma: float | None = None,
) -> IntArray:
    """Returns ``n`` lognormal lengths of mean ``mean`` tokens, rounded and at least 1.

    Give either the coefficient of variation ``cv`` or the log's deviation ``sigma``;
    sigma² = ln(1 + cv²).
    """
    spread = cv if cv is not None else sigma
    if (cv is None) == (sigma is None) or spread is None or not 0 <= spread < math.inf:
        raise UserError(f"cv is {cv}, sigma is {sigma}", hint="allowed: one of them, >= 0")
    if not 1 <= mean < math.inf:
        raise UserError(f"mean length is {mean}", hint="allowed: a number of tokens >= 1")
    sigma = math.sqrt(math.log1p(cv * cv)) if cv is not None else spread
    drawn = rng.lognormal(math.log(mean) - sigma * sigma / 2, sigma, size=n)
    return np.maximum(np.rint(drawn), 1).astype(np.int64)


def empirical_lengths(
    n: int, path: str | Path, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Returns ``n`` (input, output) pairs drawn with replacement from the rows of a file.

    The file is a trace of any known format, or a CSV with a pair of columns of
    :data:`LENGTH_COLUMNS`; a pair stays together, so correlation is kept.
    """
    tokens_in, tokens_out = read_lengths(path)
    rows = rng.integers(0, len(tokens_in), size=n)
    return tokens_in[rows], tokens_out[rows]


# Pairs of input and output columns that a file of lengths may have; the second is that of
# Vidur's length-only files.
LENGTH_COLUMNS = (
    ("input_tokens", "output_tokens"),
    ("num_prefill_tokens", "num_decode_tokens"),
    ("input_length", "output_length"),
    ("input_len", "output_len"),
    ("isl", "osl"),
)


def read_lengths(path: str | Path) -> tuple[IntArray, IntArray]:
    """Returns all (input, output) lengths of a file; raises ``UserError`` with file and line."""
    from dynosim.sim.workload.csv_table import has_columns, read_table
    from dynosim.sim.workload.trace_file import open_trace_file
    from dynosim.sim.workload.trace_rows import token_column
    from dynosim.sim.workload.traces import read_trace, told_from

    file = open_trace_file(path)
    head = file.head
    if told_from(head) is not None:
        load = read_trace(path)
        return load.input_tokens, load.output_tokens
    pairs = [pair for pair in LENGTH_COLUMNS if has_columns(head, pair)]
    if not pairs:
        allowed = "; ".join(",".join(pair) for pair in LENGTH_COLUMNS)
        message = f"no columns of lengths in {head[:80]!r}"
        hint = f"allowed: a trace, or a CSV with columns {allowed}"
        raise UserError(message, where=file.where(0), hint=hint)
    table = read_table(file, pairs[0])
    columns = zip(table.numbers(*pairs[0]), pairs[0], strict=True)
    tokens_in, tokens_out = (token_column(v, name, table.where) for v, name in columns)
    return tokens_in, tokens_out


def _whole(tokens: int) -> int:
    if not 1 <= tokens == int(tokens):
        raise UserError(f"length is {tokens}", hint="allowed: a whole number of tokens >= 1")
    return int(tokens)
