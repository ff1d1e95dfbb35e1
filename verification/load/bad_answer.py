"""An answer that is not what was asked for."""

from __future__ import annotations


class BadAnswer(Exception):
    """Says in words what is wrong with an answer; it becomes the error of its request."""
