"""Front-ends to draw from: none, one that keeps up, and ones slower than their engine."""

from dynosim.sim.cluster.frontend import Frontend

FRONTENDS = [
    Frontend(),
    Frontend(),
    Frontend(request_s=0.0003, input_token_s=1e-6, output_s=0.0004, servers=2),
    Frontend(request_s=0.004, output_s=0.0035),
    Frontend(input_token_s=1e-4, output_s=0.011, servers=3),
]
