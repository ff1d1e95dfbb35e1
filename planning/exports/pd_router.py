"""The routers that know of two pools: vllm-router, and SGLang's.

Their flags: vllm-project/router, docs/deployment/kubernetes (2026); docs.sglang.io,
advanced_features/router (2026).
"""

from __future__ import annotations

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import PORT, Candidate, Files, command_text

BOOTSTRAP_PORT = 8998
"""SGLang's default, at which decode engines ask prefill engines for KV."""
_POLICIES = {
    "vllm": {
        "round_robin": "round_robin",
        "random": "random",
        "power_of_two": "power_of_two",
        "session_affinity": "consistent_hash",
    },
    "sglang": {"round_robin": "round_robin", "random": "random", "power_of_two": "power_of_two"},
}


def files(candidate: Candidate) -> Files:
    """Returns the router's launch script, nothing where there is one pool."""
    prefill = candidate.prefill
    if prefill is None:
        return {}
    words = [*command(candidate), "--host", "0.0.0.0", "--port", str(PORT)]
    addresses = [
        f'--{role} "${{{role.upper()}_{number}}}"' + (f" {BOOTSTRAP_PORT}" if is_asked else "")
        for role, own in (("prefill", prefill), ("decode", candidate))
        for number in range(own.deployment.replicas)
        for is_asked in (role == "prefill" and candidate.backend == "sglang",)
    ]
    text = " \\\n  ".join([command_text(words), *addresses])
    head = "#!/bin/sh\n# PREFILL_0, DECODE_0, ...: the URLs of all engines\nset -eu\n\n"
    return {"router.sh": f"{head}{text}\n"}


def command(candidate: Candidate) -> list[str]:
    """Returns the router's command without the engines; UserError for a policy that it has not."""
    if candidate.backend == "vllm":
        words = ["vllm-router", "--vllm-pd-disaggregation"]
    else:
        words = ["python3", "-m", "sglang_router.launch_router", "--pd-disaggregation"]
    for own in candidate.pools:
        words += [f"--{own.role}-policy", _policy(own)]
    return words


def discovery(candidate: Candidate) -> list[str]:
    """Returns the flags by which the router finds the pods of both pools by their labels."""
    words = ["--service-discovery", "--service-discovery-port", str(PORT)]
    for own in candidate.pools:
        labels = [f"{name}={value}" for name, value in pod_labels(own).items()]
        words += [f"--{own.role}-selector", *labels]
    return words


def pod_labels(candidate: Candidate) -> dict[str, str]:
    """Returns the labels of a pool's pods."""
    return {"app": candidate.label} | ({"role": candidate.role} if candidate.role else {})


def _policy(candidate: Candidate) -> str:
    policies, router = _POLICIES[candidate.backend], candidate.deployment.router
    if router not in policies:
        raise UserError(
            f"the router of {candidate.backend}'s pools has no policy {router!r}",
            where=candidate.key("router"),
            hint=f"allowed: {', '.join(policies)}",
        )
    if options := candidate.router_options():
        raise UserError("the router of two pools has no such option", where=next(iter(options)))
    return policies[router]
