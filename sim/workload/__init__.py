"""What arrives: traces, generators and their columns.

``build_workload(WorkloadSpec(...))`` in :mod:`dynosim.sim.workload.build` is the one door;
``read_trace`` in :mod:`dynosim.sim.workload.traces` reads a file alone.
"""
