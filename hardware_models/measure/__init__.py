"""Measures the ops of a serving engine on the device at hand, as kernel tables.

``grid`` says which shapes, ``ops`` runs one (a file a family, through PyTorch), ``timing`` says
when its seconds are known well enough, ``ledger`` keeps every finished shape, ``session`` ties
these together within a time budget, ``write`` makes the tables, ``compare`` holds them against
the shipped ones. Only ``torch_bench`` and ``ops`` touch PyTorch, and only when they run.
"""
