"""What a candidate would do, without simulating it: mean-field estimates of a whole space.

The estimate is the simulator's own ``StepTimer`` and memory plan under Little's law: decodes in
flight, the step they make, and the prefills between them are a fixed point of one line. It ranks;
it is never reported. Transients, evictions and preemptions are the simulation's business.
"""
