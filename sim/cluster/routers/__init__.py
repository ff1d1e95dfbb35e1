"""Routers: which replica serves a request. One module a policy; its name is the router's name.

A module offers ``make(num_replicas, rng) -> Router``. Routers see loads, never output lengths.
"""
