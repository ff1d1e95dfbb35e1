"""When synthetic requests arrive: Poisson, gamma, constant, or all at once."""

from __future__ import annotations

import math

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.timetable import parse_timetable


def paced_arrivals(
    num_prompts: int, request_rate: float, burstiness: float, rng: np.random.Generator
) -> FloatArray:
    """Returns ``num_prompts`` arrival times in seconds, the first at 0.

    ``vllm bench serve``'s process: gaps are gamma of shape ``burstiness`` and mean
    1 / ``request_rate`` (req/s), so 1 is Poisson, less is burstier (CV = burstiness ** -0.5) and
    ``inf`` is constant; all times are then scaled so that n gaps last n / rate exactly. A rate of
    ``inf`` sends everything at once. Another rate scales the same arrivals.
    """
    _check_positive("request_rate", request_rate)
    _check_positive("burstiness", burstiness)
    if math.isinf(request_rate):
        return np.zeros(num_prompts)
    at = np.cumsum(_unit_gaps(num_prompts, burstiness, rng))
    if not at[-1]:
        # A shape below ~1e-3 can underflow every gap: one burst, as far as doubles can tell.
        return np.zeros(num_prompts)
    arrival_s: FloatArray = (at - at[0]) * (num_prompts / at[-1] / request_rate)
    return arrival_s


def varying_arrivals(
    num_prompts: int, rates: str, burstiness: float, rng: np.random.Generator
) -> FloatArray:
    """Returns arrival times in seconds at rates that change with time.

    The arrivals of a constant rate on a clock that runs as fast as the rate is high; before the
    first of the ``rates`` and while one is 0 nobody comes, and the last lasts for ever.
    """
    times_s, values = parse_timetable(rates, where="request_rates", what="requests per second")
    if not values[-1] > 0.0:
        raise UserError(
            "nobody comes in the end", where="request_rates", hint="the last rate must be > 0"
        )
    unit = paced_arrivals(num_prompts, 1.0, burstiness, rng)
    due = np.concatenate(([0.0], np.cumsum(np.diff(times_s) * values[:-1])))
    place = np.searchsorted(due, unit, side="right") - 1
    arrival_s: FloatArray = np.array(times_s)[place] + (unit - due[place]) / np.array(values)[place]
    return arrival_s


def _unit_gaps(n: int, burstiness: float, rng: np.random.Generator) -> FloatArray:
    if math.isinf(burstiness):
        return np.ones(n)
    return rng.gamma(burstiness, 1 / burstiness, size=n)


def _check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise UserError(f"`{name}` is {value}", where=name, hint="allowed: a number > 0, or inf")
