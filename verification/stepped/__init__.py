"""Engines driven step by step, on a clock that only their steps move.

``run`` sends a load to a :class:`~.engine.StepEngine` on a virtual clock, which each step moves by
what it cost by one of the ``clocks``; ``step_record`` is what is kept of every step. A busy machine
then stretches nothing but what it steals from a step.
"""
