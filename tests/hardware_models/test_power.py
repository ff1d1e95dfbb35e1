"""GPU boards' draw between an idle engine and a busy one."""

from __future__ import annotations

import numpy as np
import pytest

from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.power import mean_watts


def test_eight_h100_draw_6_kilowatts_at_most_and_1_while_they_wait() -> None:
    h100 = get_gpu("h100_sxm")  # 700 W
    assert mean_watts(h100, 8, 1.0) == pytest.approx(8 * 700 * 0.86)
    assert mean_watts(h100, 8, 0.0) == pytest.approx(8 * 700 * 0.17)
    halves = mean_watts(h100, np.array([1.0, 2.0]), np.array([0.5, 0.5]))
    assert halves.tolist() == pytest.approx([700 * 0.515, 1400 * 0.515])
