"""Routers: which replica serves a request. One module a policy; its name is the router's name.

A module offers ``make(num_replicas, seed) -> Router``; one that draws takes its own stream of the
seed (:mod:`dynosim.sim.random_streams`). Routers see loads, never output lengths.
"""
