"""A load generator that is late says so, or its run is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dynosim.hardware_models.errors import UserError
from dynosim.verification.load.lag import Lag, check_lag, lag_of
from dynosim.verification.observed import ObservedRequest

# Sent 1 ms late; TTFT 100 ms.
SEEN = ObservedRequest(index=0, planned_s=1.0, sent_s=1.001, token_s=(1.101,), input_tokens=5)


def test_lag_is_the_99th_percentile_of_both_kinds() -> None:
    seen = [replace(SEEN, index=i) for i in range(200)]
    late = [replace(SEEN, sent_s=1.5, token_s=(1.6,))] * 5
    lag = lag_of([*seen, *late], late_s=[0.0] * 98 + [0.004] * 2)
    assert lag.sending_s == pytest.approx(0.5, rel=0.01)
    assert lag.reading_s == pytest.approx(0.004)
    assert lag.worst_s == lag.sending_s
    assert lag.facts()["load_generator_read_lag_p99_ms"] == 4.0


def test_a_small_lag_is_silent_a_larger_one_told_a_large_one_refused() -> None:
    silent, told, large = (Lag(sending_s=s, reading_s=0.0) for s in (0.0004, 0.004, 0.006))
    assert check_lag(silent, [SEEN], 0.05) is None
    assert check_lag(told, [SEEN], 0.05) == (
        "the load generator was 4.00 ms late (p99), 4.0% of the median TTFT of 100 ms"
    )
    with pytest.raises(UserError, match=r"(?s)6.00 ms late.*6.0%.*allowed: 5%"):
        check_lag(large, [SEEN], 0.05)
