"""Values by the clock, as in "0:2, 600:8, 1200:2"."""

from __future__ import annotations

import math

from dynosim.hardware_models.errors import UserError


def parse_timetable(text: str | None, *, where: str, what: str) -> tuple[list[float], list[float]]:
    """Returns seconds and the values from each of them on.

    Raises UserError, at ``where``, unless times ascend and values are finite and not negative.
    """
    try:
        pairs = [tuple(map(float, part.split(":"))) for part in (text or "").split(",")]
        times_s, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        is_right = all(len(pair) == 2 and all(0.0 <= x < math.inf for x in pair) for pair in pairs)
        is_right = is_right and times_s == sorted(set(times_s))
    except (ValueError, IndexError):
        is_right = False
    if not is_right:
        raise UserError(
            f"found {text!r}",
            where=where,
            hint=f'seconds and {what} in order of time, as in "0:2, 600:8, 1200:2"',
        )
    return times_s, values
