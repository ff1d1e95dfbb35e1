"""Rules that tell a measurement from an accident; applied to every table alike.

Each rule is a pure function that states its fault. The thresholds stand in the gaps between sound
and faulty tables of the source (figures beside each, aiconfigurator-core 0.12.0 of 2026, all GPUs
of ``system.GPUS``); no rule and no threshold knows a GPU, a backend or a measured service time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynosim.hardware_models.build_data.rows import Rows

Mask = NDArray[np.bool_]

RESOLUTION_S = 2e-7
"""No kernel is shorter: what is, is noise."""

LAUNCH_BOUND_S = 2e-6
"""Shapes that need less than this at the GPU's peak rates take a kernel's launch, not its work."""

MIN_LAUNCH_BOUND_ROWS = 8
"""Fewer launch-bound shapes than this say nothing of a group's floor."""

FLOOR_RATIO = 8.0
"""Launch floor over the next highest of another backend. Sound attention reaches 4.3, sound MoE
(which may stream many experts) 6.4; the faulty fp8_block GEMMs start at 11.5."""

TESTABLE_S = 10e-6
"""Utilisation is judged where the bound is at least this: below, clocks and timers blur it."""

UTILISATION = 1.05
"""Peaks are nominal: sound tables reach 1.02 of them (memory) and 0.99 (arithmetic)."""

FAULTY_SHARE = 0.05
"""A group with more impossible rows than this was measured wrongly as a whole; the faulty A100
decode attention has 0.13 of its testable rows above 1.05, the next group 0.02."""

SPIKE_RATIO = 3.0
"""Rows this far above both neighbours on their curve: 1 in 10,000. Kernels switched from one
size to the next step up or down, they do not come back."""

BUMP_RATIO = 1.5
"""The same for GEMMs, where a few neighbours may share the hiccup. Where kernels are really
switched the slower stretch is longer, or less above what follows (1.39: TensorRT-LLM's fp8_block
at 129-256 tokens)."""

PLAIN = "bfloat16"
FEW_TOKENS = 64
"""Up to this many tokens a product is bound by reading its weights."""

STREAMING_S = 60e-6
"""Shapes whose 16-bit weights take at least this long are read, not just launched."""

MIN_STREAMING_ROWS = 8

OVER_PLAIN = 1.22
"""Weights of fewer bits over 16-bit ones of one backend, at few tokens. Sound tables reach 1.17,
the slow paths start at 1.27 (int4 experts of vLLM 0.19 on H200) and 2.3 (fp8 experts of 0.24)."""

OVER_OTHERS = 1.5
"""The same weights over those of every other backend. The slow paths start at 1.66; sound tables
reach more, but not together with :data:`OVER_PLAIN`."""


NOTICEABLE_S = 10e-6
"""Products that another backend takes this long for show which kernel they ran."""

SLOWER_THAN_ALL = 1.4
"""Products over those of every other backend, where kernels come from the same libraries. Sound
tables reach 1.32 (TensorRT-LLM's fp8, which includes finding scales); faulty ones start at 1.47."""


def unmeasured(rows: Rows) -> Mask:
    """Fault: a latency that is not a positive finite number, the mark of a failed run."""
    bad: Mask = ~(np.isfinite(rows.latency_s) & (rows.latency_s > 0))
    return bad


def foreign_device(device: NDArray[Any], own: str) -> Mask:
    """Fault: rows copied from another GPU's table, or from one that does not say which.

    A shorter name of the same device ("NVIDIA H100" for "NVIDIA H100 80GB HBM3") passes.
    """
    names, position = np.unique(device, return_inverse=True)
    verdict = [not name or not own.startswith(name) for name in names.tolist()]
    foreign: Mask = np.array(verdict, dtype=bool)[position]
    return foreign


def spikes(rows: Rows, ratio: float = SPIKE_RATIO) -> Mask:
    """Fault: a row several times above both neighbours along its last key (a hiccup while timing).

    ``rows`` are sorted by all keys; the first and the last of a curve have one neighbour and pass.
    """
    curve = rows.ids(rows.keys[:-1])
    found = np.zeros(len(rows), dtype=bool)
    inside = (curve[:-2] == curve[1:-1]) & (curve[2:] == curve[1:-1])
    around = np.maximum(rows.latency_s[:-2], rows.latency_s[2:])
    found[1:-1] = inside & (rows.latency_s[1:-1] > ratio * around)
    return found


def bumps(rows: Rows, width: int, ratio: float = BUMP_RATIO) -> Mask:
    """Fault: up to ``width`` rows in a row that are all well above those before and behind them.

    ``rows`` are sorted by all keys; what begins or ends a curve passes.
    """
    curve = rows.ids(rows.keys[:-1])
    latency_s, count = rows.latency_s, len(rows)
    found = np.zeros(count, dtype=bool)
    for wide in range(1, min(width, count - 2) + 1):
        before, behind = slice(0, count - wide - 1), slice(wide + 1, count)
        lowest = np.min([latency_s[1 + i : count - wide + i] for i in range(wide)], axis=0)
        around = np.maximum(latency_s[before], latency_s[behind])
        high = (curve[before] == curve[behind]) & (lowest > ratio * around)
        for i in range(wide):
            found[1 + i : count - wide + i] |= high
    return found


def impossible(rows: Rows, bound_s: NDArray[Any]) -> Mask:
    """Fault: faster than the GPU's peak arithmetic or memory rate allows for the work at hand.

    ``bound_s`` is the roofline bound per row; what an L2 cache can hold is left out of it.
    """
    beyond: Mask = (bound_s >= TESTABLE_S) & (bound_s > UTILISATION * rows.latency_s)
    return beyond


def impossible_group(rows: Rows, bound_s: NDArray[Any]) -> str | None:
    """Fault: so many impossible rows that the rest of the group cannot be trusted either."""
    testable = bound_s >= TESTABLE_S
    if not testable.any():
        return None
    beyond = impossible(rows, bound_s)
    share = beyond.sum() / testable.sum()
    if share <= FAULTY_SHARE:
        return None
    most = (bound_s / rows.latency_s)[testable].max()
    return (
        f"utilisation above 1: {beyond.sum()} of {testable.sum()} rows large enough to judge are "
        f"faster than the GPU's peak allows, up to {most:.2f} times"
    )


def launch_floor_s(rows: Rows, bound_s: NDArray[Any]) -> float | None:
    """Returns the median latency of launch-bound shapes; None where too few are there to tell.

    ``bound_s`` is the roofline bound per row with every byte coming from memory.
    """
    small = bound_s < LAUNCH_BOUND_S
    if small.sum() < MIN_LAUNCH_BOUND_ROWS:
        return None
    return float(np.median(rows.latency_s[small]))


def slow_launch(floors_s: Sequence[tuple[float, float]]) -> str | None:
    """Fault: shapes that cost next to nothing take many times what *every* other backend takes.

    ``floors_s`` holds (own, other) launch floors per other backend, over the same shapes where
    both have them. The mark of a slow path that no engine ships with (a kernel library missing
    from the measuring image), or of host time measured as kernel time.
    """
    if not floors_s:
        return None
    own, other = min(floors_s, key=lambda pair: pair[0] / pair[1])
    if own <= FLOOR_RATIO * other:
        return None
    return (
        f"launch floor: shapes with under {LAUNCH_BOUND_S * 1e6:.0f} us of work take "
        f"{own * 1e6:.0f} us, other backends on this GPU {other * 1e6:.1f} us"
    )


def streaming(tokens: NDArray[Any], latency_s: NDArray[Any], least_s: float = STREAMING_S) -> Mask:
    """Returns which rows have few tokens and take at least ``least_s``: those that read weights."""
    reads: Mask = (tokens <= FEW_TOKENS) & (latency_s >= least_s)
    return reads


def slower_than_plain(over_plain: NDArray[Any], over_others: Sequence[NDArray[Any]]) -> str | None:
    """Fault: weights of fewer bits take longer to read than 16-bit ones, in one backend only.

    ``over_plain`` are seconds over those of the same backend's 16-bit weights at the same shapes,
    where reading binds; ``over_others`` those over the same format of each other backend. The mark
    of a fallback kernel that the measuring image ran instead of the engine's own.
    """
    judged = [ratio for ratio in over_others if len(ratio) >= MIN_STREAMING_ROWS]
    if len(over_plain) < MIN_STREAMING_ROWS or not judged:
        return None
    own, nearest = float(np.median(over_plain)), min(float(np.median(r)) for r in judged)
    if own <= OVER_PLAIN or nearest <= OVER_OTHERS:
        return None
    return (
        f"slower than bfloat16: up to {FEW_TOKENS} tokens these weights take {own:.1f} times as "
        f"long to read as 16-bit ones of the same backend, other backends read them "
        f"{nearest:.1f} times as fast or faster"
    )


def slower_than_all(over_others: Sequence[NDArray[Any]]) -> str | None:
    """Fault: every other backend runs the same products much faster, from the same libraries.

    ``over_others`` are seconds over those of each other backend, at few tokens. The mark of a
    kernel that was not tuned when it was measured, as the engine tunes it when it starts.
    """
    judged = [float(np.median(r)) for r in over_others if len(r) >= MIN_STREAMING_ROWS]
    if len(judged) < 2 or min(judged) <= SLOWER_THAN_ALL:
        return None
    return (
        f"slower than all: up to {FEW_TOKENS} tokens these products take {min(judged):.1f} times "
        f"as long as with any other backend on this GPU"
    )
