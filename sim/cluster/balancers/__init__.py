"""Balancers: which data-parallel rank of an engine serves a request. One module a policy.

A module offers ``make() -> Balancer``. Which one a backend uses, and where that was read, stands in
``hardware_models/data/data_parallel.yaml``. Balancers see loads as they are at the moment; the real
ones learn of them with a delay (vLLM's every 100 ms).
"""
