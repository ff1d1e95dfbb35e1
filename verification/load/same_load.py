"""Whether a measurement was made with the load that was planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dynosim.accuracy.results.base import MeasuredRun
from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.sim.workload.columns import Workload
from dynosim.verification.load_plan import LoadPlan

TOLERANCE = 0.02
"""Share by which lengths and rate may differ: less than what a verification is to tell apart."""


@dataclass(frozen=True, kw_only=True)
class _Load:
    """Mean tokens of prompts and answers, and the pace: None for no rate or no cap.

    Turns pace themselves: the slower the answers, the fewer come in a second.
    """

    input_tokens: float
    output_tokens: float
    request_rate: float | None
    max_concurrency: int | None
    has_turns: bool


def check_same_load(
    expected: Workload | LoadPlan, run: MeasuredRun, *, request_rate: float | None = None
) -> None:
    """Raises UserError, naming all differences, where a run's load differs by more than 2 %.

    ``request_rate`` is the rate that arrivals were drawn for: tools report that, not what was
    drawn. A cap of requests in flight must be the same.
    """
    planned = _load_of(expected)
    rate = planned.request_rate if request_rate is None else request_rate
    errors = [UserError(problem, where=run.where) for problem in _problems(planned, rate, run)]
    if errors:
        errors[-1].hint = f"allowed: within {TOLERANCE:.0%} of the plan"
        raise errors[0] if len(errors) == 1 else InputErrors(errors)


def _problems(planned: _Load, rate: float | None, run: MeasuredRun) -> Iterator[str]:
    lengths = {
        "prompts (ISL)": (planned.input_tokens, run.input_tokens),
        "answers (OSL)": (planned.output_tokens, run.output_tokens),
    }
    for what, (wanted, found) in lengths.items():
        if _differs(wanted, found):
            yield f"{what} of {found:.4g} tokens, planned: {wanted:.4g} ({found / wanted - 1:+.1%})"
    if planned.max_concurrency != run.max_concurrency:
        found_cap, cap = _cap(run.max_concurrency), _cap(planned.max_concurrency)
        yield f"{found_cap}, planned: {cap}"
    elif planned.has_turns:
        return
    elif rate is not None and run.request_rate is not None and _differs(rate, run.request_rate):
        change = run.request_rate / rate - 1
        yield f"{run.request_rate:.4g} requests/s, planned: {rate:.4g} ({change:+.1%})"
    elif planned.max_concurrency is None and (rate is None) != (run.request_rate is None):
        found_pace, pace = _pace(run.request_rate), _pace(rate)
        yield f"{found_pace}, planned: {pace}"


def _differs(wanted: float, found: float) -> bool:
    return abs(found - wanted) > TOLERANCE * wanted


def _cap(cap: int | None) -> str:
    return "no limit of requests in flight" if cap is None else f"{cap} requests in flight"


def _pace(rate: float | None) -> str:
    return "all requests at once" if rate is None else f"{rate:.4g} requests/s"


def _load_of(expected: Workload | LoadPlan) -> _Load:
    if isinstance(expected, Workload):
        inputs, outputs = expected.input_tokens, expected.output_tokens
        send_s = expected.arrival_s
    else:
        first = expected.warmup
        inputs = np.array([len(prompt) for prompt in expected.prompts[first:]])
        outputs = np.array(expected.output_tokens[first:])
        send_s = np.array((expected.send_s or ())[first:])
    span_s = float(send_s[-1] - send_s[0]) if len(send_s) else 0.0
    return _Load(
        input_tokens=float(inputs.mean()),
        output_tokens=float(outputs.mean()),
        request_rate=(len(send_s) - 1) / span_s if span_s > 0 else None,
        max_concurrency=expected.max_concurrency,
        has_turns=expected.turns is not None,
    )
