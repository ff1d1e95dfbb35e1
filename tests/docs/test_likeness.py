"""Lines of pages are held against what is printed by words, and figures roughly."""

from __future__ import annotations

import pytest

from likeness import alike


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("TTFT  49.7  48.1", "TTFT      55.0     48.1", True),
        ("TTFT  49.7", "TTFT  149.7", False),
        ("TTFT  49.7", "TPOT  49.7", False),
        ("2 x TP4  1,423", "2 x TP4  1,500 ", True),
        ("Bound by  compute 80%, …", "Bound by  compute 30%, host 70%", True),
        ("Bound by  compute 80%, …", "Bound by  memory 30%", False),
    ],
)
def test_words_are_equal_and_figures_close(shown: str, printed: str, expected: bool) -> None:
    assert alike(shown, printed) is expected
