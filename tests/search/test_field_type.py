"""Which plain values a field's annotation takes."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Gt, Interval, Le

from dynosim.search.field_type import accepts

Positive = Annotated[int, Ge(1)]
Share = Annotated[float, Gt(0), Le(1)]


@pytest.mark.parametrize(
    ("hint", "value", "fits"),
    [
        (int, 3, True),
        (int, 3.0, False),
        (int, "3", False),
        (int, True, False),
        (float, 3, True),
        (float, math.inf, True),
        (float, math.nan, False),
        (float, True, False),
        (bool, True, True),
        (bool, 1, False),
        (str, "a", True),
        (str, 1, False),
        (Positive, 1, True),
        (Positive, 0, False),
        (Positive | None, None, True),
        (Positive | None, 0, False),
        (Positive, None, False),
        (Share, 1, True),
        (Share, 0.0, False),
        (Share, 1.01, False),
        (Annotated[int, Interval(ge=2, lt=5)], 4, True),
        (Annotated[int, Interval(ge=2, lt=5)], 5, False),
        (Literal["auto", "fp8"], "fp8", True),
        (Literal["auto", "fp8"], "FP8", False),
        (Literal[1, 2], True, False),
        (int | str, "x", True),
        (int | str, [1], False),
    ],
)
def test_a_value_fits_or_does_not(hint: object, value: object, fits: bool) -> None:
    assert accepts(hint, value) is fits
