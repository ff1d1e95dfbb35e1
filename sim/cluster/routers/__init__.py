"""Routers: which replica serves a request. One module a policy; its name is the router's name.

A module offers ``make(context) -> Router`` and, where it reads options of its own, ``OPTIONS``, the
names of these fields of :class:`~dynosim.sim.cluster.router_options.RouterOptions`. A router that
draws does so from ``context.rng``. Routers see prompts and loads, never output lengths.
"""
