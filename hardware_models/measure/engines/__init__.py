"""An engine's own kernels, one file an engine, for where it is installed beside dynosim.

A file has ``version()``, ``linear(lab, dtype, n, k, m)`` and ``attention(lab, heads, new, seen)``;
the latter two return :class:`~..lab.Calls` or raise :class:`~..case.Unsupported`. What the engine
has no kernels for here is measured through PyTorch.
"""
