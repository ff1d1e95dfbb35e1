"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout that the tests stand in."""
    return CHECKOUT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of measured results and real traces; absent outside the developers' machines."""
    configured = os.environ.get("DYNOSIM_SHARED_DATA")
    folder = Path(configured) if configured else CHECKOUT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"measured data folder not present: {folder} (set DYNOSIM_SHARED_DATA)")
    return folder
