"""Autoscalers: how many replicas there should be. One module a policy; its name is the policy's.

A module offers ``make(context) -> Autoscaler``. It is asked once an interval and answers for the
moment: bounds, stabilisation windows and cooldown are applied to whatever it says
(:mod:`dynosim.sim.cluster.scaling.stabiliser`).
"""
