"""Batch schedulers: who gets how many tokens in a step. One module a backend, by its name.

A module offers ``make(limits, num_blocks, blocks_per_unit, log) -> Scheduler`` and ``POLICIES``,
the values of ``scheduling_policy`` that it knows, its default first.
"""
