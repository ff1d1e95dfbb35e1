"""A workload as benchmark tools describe one: lengths by mean and deviation, and a pace."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import PORT, Candidate
from dynosim.sim.workload.spec import WorkloadSpec
from dynosim.sim.workload.synthetic import INPUT_LEN, NUM_PROMPTS, OUTPUT_LEN

URL = f"http://localhost:{PORT}"
UNKNOWN = ("request_rates", "num_turns")
"""Options of synthetic requests that no tool has a word for."""


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Tokens of prompts and answers: mean and standard deviation; ``shape`` is how dynosim draws.

    ``shape`` is ``fixed``, ``uniform`` or ``lognormal``.
    """

    input_mean: float
    input_std: float
    output_mean: float
    output_std: float
    shape: str


def lengths_of(spec: WorkloadSpec) -> Lengths:
    """Returns the lengths of synthetic requests, the shared prefix not included."""
    tokens_in = spec.random_input_len or INPUT_LEN
    tokens_out = spec.random_output_len or OUTPUT_LEN
    if spec.random_range_ratio is not None:
        r = spec.random_range_ratio
        is_vllm = spec.random_range_convention == "vllm"
        centre, half = (1.0, r) if is_vllm else ((1 + r) / 2, (1 - r) / 2)
        parts = [(t * centre, t * half / math.sqrt(3)) for t in (tokens_in, tokens_out)]
        shape = "uniform" if half else "fixed"
    elif spec.random_input_cv or spec.random_output_cv:
        cvs = (spec.random_input_cv or 0.0, spec.random_output_cv or 0.0)
        parts = [(float(t), t * cv) for t, cv in zip((tokens_in, tokens_out), cvs, strict=True)]
        shape = "lognormal"
    else:
        parts, shape = [(float(tokens_in), 0.0), (float(tokens_out), 0.0)], "fixed"
    (input_mean, input_std), (output_mean, output_std) = parts
    return Lengths(
        input_mean=input_mean,
        input_std=input_std,
        output_mean=output_mean,
        output_std=output_std,
        shape=shape,
    )


def normal_note(tool: str, lengths: Lengths) -> list[str]:
    """Returns the comment that a tool draws other lengths of the same mean and deviation."""
    if lengths.shape == "fixed":
        return []
    return [
        f"lengths: {tool} draws them normal, dynosim {lengths.shape}, of one mean and deviation"
    ]


def num_prompts(spec: WorkloadSpec) -> int:
    """Returns how many requests are sent."""
    return spec.num_prompts or NUM_PROMPTS


def refuse(spec: WorkloadSpec, tool: str, *names: str) -> None:
    """Raises UserError for the first of the named options that was given."""
    for name in names:
        if spec.given(name):
            raise UserError(
                f"{tool} cannot send it", where=f"workload: {name}", hint="leave it out"
            )


def trace_path(candidate: Candidate, tool: str, *formats: str) -> str:
    """Returns the path of the trace, whose format must be one of those the tool reads."""
    from dynosim.sim.workload.trace_file import open_trace_file
    from dynosim.sim.workload.traces import told_from

    spec = candidate.workload
    assert spec.trace is not None, "no trace"
    name = spec.trace_format
    if name is None:
        reader = told_from(open_trace_file(spec.trace).head)
        # A format is a module, which is named after it.
        name = getattr(reader, "__name__", "unknown").rpartition(".")[2]
    if name not in formats:
        raise UserError(
            f"{tool} does not read the format {name}",
            where="workload: trace",
            hint=f"allowed: {', '.join(formats)}",
        )
    return spec.trace
