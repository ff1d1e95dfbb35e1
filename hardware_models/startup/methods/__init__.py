"""Ways of starting: one module a method; its name is the method's name.

A module offers ``plan(start) -> StartupPlan`` for a :class:`~..plan.Start`. What comes before any
of them, a node and an image, is added to those that do not wake a replica.
"""
