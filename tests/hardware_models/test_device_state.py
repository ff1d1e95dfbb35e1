"""Clocks and temperatures."""

from __future__ import annotations

from dynosim.hardware_models.measure.device_state import parsed_smi, state_reader


def test_smi_figures_that_a_device_does_not_tell_are_left_out() -> None:
    found = parsed_smi("1980, 2619, 41, [N/A], 700.00\n")
    assert found == {
        "sm_clock_mhz": 1980.0,
        "memory_clock_mhz": 2619.0,
        "temperature_c": 41.0,
        "power_limit_w": 700.0,
    }


def test_a_cpu_tells_no_state() -> None:
    assert state_reader(None)() is None
