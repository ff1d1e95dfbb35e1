"""Discrete-event performance simulator and Pareto optimiser for LLM serving."""

from __future__ import annotations

__version__ = "0.1.0"
