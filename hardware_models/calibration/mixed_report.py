"""The fit of mixed batches as text: table, coefficient file, page of the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.calibration.mixed_forms import ADDITIVE, FORMS, TILES, US
from dynosim.hardware_models.calibration.mixed_grid import MixedGrid
from dynosim.hardware_models.timing.mixed import TileCoefficients

COMMAND = "python -m dynosim.hardware_models.calibration.mixed_batch DATA --write"
SOURCE = "https://github.com/casys-kaist/LLMServingSim"
MEASURED = "vLLM 0.19.0, eager, bfloat16, profiled 2026-04-24 (RTX PRO 6000), 2026-08-17 (RTX 4090)"
LICENCE = "MIT; the data itself is not part of this project"

NOISE = 0.97
"""Ratio down to which a mixed batch faster than its slower part is taken for noise."""

CONTEXTS = (0.0, 4096.0, 65536.0, np.inf)
"""Bounds of the table by summed decode context, in tokens."""


@dataclass(frozen=True)
class HeldOut:
    """Errors on rows of which the fit saw no model (or no GPU) in common.

    ``median`` and ``p90`` are quantiles of |predicted / measured - 1|.
    """

    form: str
    left_out: str
    scored: str
    points: int
    median: float
    p90: float


def table_text(scores: Sequence[HeldOut]) -> str:
    """Returns the Markdown table of held-out errors, the sum of the parts beside ours."""
    lines = [
        "| left out of the fit | scored on | points | sum: median | p90 | ours: median | p90 |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    ours = {(s.left_out, s.scored): s for s in scores if s.form == TILES.name}
    for row in (s for s in scores if s.form == ADDITIVE.name):
        mine = ours[row.left_out, row.scored]
        lines.append(
            f"| {row.left_out} | {row.scored} | {row.points:,} | {_pct(row.median)} "
            f"| {_pct(row.p90)} | {_pct(mine.median)} | {_pct(mine.p90)} |"
        )
    return "\n".join(lines)


def forms_text(scores: Sequence[HeldOut]) -> str:
    """Returns the Markdown table of all forms: mean and worst over the measured grids."""
    lines = [
        "| form | free | model left out: median | p90 | worst p90 "
        "| GPU left out: median | p90 | worst p90 |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for form in FORMS:
        cells = [form.says, str(len(form.start))]
        for axis in ("model", "gpu"):
            rows = [s for s in scores if s.form == form.name and s.left_out.startswith(axis)]
            cells += [
                _pct(_mean(s.median for s in rows)),
                _pct(_mean(s.p90 for s in rows)),
                _pct(max(s.p90 for s in rows)),
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def contexts_text(found: TileCoefficients, grid: MixedGrid) -> str:
    """Returns the Markdown table by summed decode context, fit to all rows."""
    lines = [
        "| decode context in sum | points | measured / sum: median | p90 "
        "| sum: median error | p90 | ours: median error | p90 |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    total = grid.prefill_s + grid.decode_s
    predicted = TILES.seconds(parameters_of(found), grid)
    summed = grid.num_decode * grid.context
    for low, high in pairwise(CONTEXTS):
        rows = (summed > low) & (summed <= high)
        ratio = grid.mixed_s[rows] / total[rows]
        name = f"over {low:,.0f}" if np.isinf(high) else f"to {high:,.0f}"
        cells = [f"{name} tokens", f"{int(rows.sum()):,}", *_quantiles(ratio, "{:.2f}")]
        for seconds in (total, predicted):
            cells += _quantiles(np.abs(seconds[rows] / grid.mixed_s[rows] - 1.0), "{:.1%}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parameters_of(found: TileCoefficients) -> FloatArray:
    """Returns the coefficients as the vector form takes them."""
    return np.array(
        [found.tile_s / US, found.empty_tile_s / US, found.l2_share, found.reread_share]
    )


def yaml_text(
    found: TileCoefficients, grid: MixedGrid, scores: Sequence[HeldOut], date: str
) -> str:
    """Returns the coefficient file."""
    ours = [s for s in scores if s.form == TILES.name]
    lines = [
        "# Coefficients of timing/mixed.py. Written by",
        f"#   {COMMAND}",
        "source:",
        f'  measurements: "{SOURCE} (attention grids of profiler/perf)"',
        f'  measured_with: "{MEASURED}"',
        f'  licence: "{LICENCE}"',
        f"  fitted: {date}",
        f"  points: {len(grid)}",
        "coefficients:",
        *(f"  {name}: {value:.4g}" for name, value in asdict(found).items()),
        "# |predicted / measured - 1| on grids of a model or GPU that the fit did not see.",
        "held_out_error:",
    ]
    for axis in ("model", "gpu"):
        rows = [s for s in ours if s.left_out.startswith(axis)]
        lines.append(
            f"  leave_one_{axis}_out: {{median: {_mean(s.median for s in rows):.3f}, "
            f"p90: {_mean(s.p90 for s in rows):.3f}, worst_p90: {max(s.p90 for s in rows):.3f}}}"
        )
    return "\n".join(lines) + "\n"


def document(found: TileCoefficients, grid: MixedGrid, scores: Sequence[HeldOut], date: str) -> str:
    """Returns the page ``docs/mixed-batches.md``."""
    slower = np.maximum(grid.prefill_s, grid.decode_s)
    below = float(np.mean(grid.mixed_s < NOISE * slower))
    return PAGE.format(
        command=COMMAND,
        date=date,
        points=f"{len(grid):,}",
        source=SOURCE,
        measured=MEASURED,
        licence=LICENCE,
        contexts=contexts_text(found, grid),
        held_out=table_text(scores),
        forms=forms_text(scores),
        tile_us=f"{found.tile_s / US:.2f}",
        empty_us=f"{found.empty_tile_s / US:.2f}",
        l2_share=f"{found.l2_share:.2f}",
        reread_share=f"{found.reread_share:.2f}",
        below=f"{below:.1%}",
    )


def _pct(share: float) -> str:
    return f"{share:.1%}"


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _quantiles(values: FloatArray, pattern: str) -> list[str]:
    return [pattern.format(q) for q in np.quantile(values, [0.5, 0.9])]


PAGE = """<!-- Generated by {command} -->
# Mixed batches cost more than their parts

A step that prefills a chunk and decodes other sequences runs one attention kernel over both.
Its time is not the sum of a prefill-only and a decode-only step of the same shapes:

{contexts}

(coefficients fitted to all {points} points; held-out errors below)

## Why

FlashAttention-2's variable-length kernel cuts queries into tiles of 64 rows. In a mixed batch
each decoding sequence and query head fills a whole tile with one row. So decode

1. computes at prefill's speed: 64 rows of work for one row wanted;
2. is not split over processors: a lone long context runs on one processor per head while the
   others wait, and tiles run in waves;
3. does not pack the query heads of a KV head: once the keys of one KV head, over all sequences,
   outgrow the L2 cache, heads that run in different waves read them again, up to heads / KV heads
   times;
4. launches an empty tile per sequence and head for each further 64 tokens of the chunk.

## The model

With `waves = sequences x heads / slots`, `slots = processors x tiles that fit one`:

```text
tile        = {tile_us} us + keys x (64 x prefill seconds per pair x slots / heads)
reread      = (heads / KV heads - 1) x min(1, {reread_share} x sequences / slots)
              x r^2 / (1 + r^2)
r           = KV cache of one KV head, all sequences / ({l2_share} x L2 cache)
decode      = max(tile x max(1, waves + 1/2), decode alone x (1 + reread))
overlap     = shorter last wave of the two: all of it where both fit one wave, else half
mixed       = prefill alone + decode - overlap
              + {empty_us} us x waves x (tiles of the chunk - 1)
```

Four numbers are fitted ({date}); the tile's shape is the kernel's, its speed per key is that of
prefill on the same GPU, the halves are those of a part-filled wave. It is exactly prefill or
decode where the other is absent, never below either, and grows with both.

## Held-out error

|predicted / measured - 1| of the mixed time, given the measured times of both parts. The four
coefficients did not see the model (or the GPU) that is scored; the form itself was found while
looking at all of them.

{held_out}

Other forms, the same way (means over the measured grids; `free`: fitted parameters):

{forms}

## What to trust

- Measured: {measured}; {source}
  ({licence}). Head dimension 128, three models, one chunk
  of 16 to 2,048, prefixes and contexts to 16,384, up to 128 decoding sequences of one length.
- In {below} of the points the mixed kernel is over 3% faster than the slower of its parts, mostly
  decode of short contexts, where the kernel for pure decode has the dearer launch. The model
  stays at the slower part there.
- Other GPUs with the same kernel (compute capability 8.x and 12.x) follow from the processors,
  shared memory and L2 cache of their cards and from their prefill speed: transferred, not
  measured. The A100 keeps two tiles per processor, which no measured GPU does.
- Everything else is taken to add up, without overlap, because its kernels differ and none was
  measured here: Hopper (FlashAttention-3 packs query heads and splits contexts in mixed batches
  too), data-centre Blackwell, MLA, 8-bit caches, SGLang and TensorRT-LLM (which launch prefill
  and decode apart). For Hopper that is an assumption, and an optimistic one.
- Blind check: the profiler's skew shots (skew.csv of the same repository, commit 5daddb21, sums of
  three iterations) hold 50,738 more mixed batches at lengths off the grid. With decode alone
  interpolated, sequences of one length are predicted to 5.3 % median, 15.9 % p90 (the sum: 38.2 %,
  66.3 %).
- Unequal contexts: in those shots the longest context is mostly four times the shortest, which
  lengthens a mixed batch by 4 % median, 29 % p90 (pure decode: 2 %, 13 %), most with few sequences:
  the last wave ends with the longest tile. The model takes the mean length and is then 9.9 %
  median, 24.9 % p90 off; three quarters of (longest - mean) tile more would make it 6.1 %, 18.4 %.
- Several chunks in one step share the empty tiles of the longest; a caller that does not say which
  is the longest is charged as for one chunk of their sum.
- Leaving out Llama-3.1-8B also leaves out the RTX 4090, where no other model was measured.
"""
