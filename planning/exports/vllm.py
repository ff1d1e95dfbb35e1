"""``vllm serve``: the command that launches one replica."""

from __future__ import annotations

import json
from typing import Any

from dynosim.planning.exports import pd_router
from dynosim.planning.exports.base import PORT, Candidate, Files, describe, need_backend, script
from dynosim.planning.exports.knobs import flags

_SIDE_CHANNEL = "VLLM_NIXL_SIDE_CHANNEL_HOST: this host's address, as the other pool reaches it"
METHODS = {
    "ngram": "ngram",
    "eagle": "eagle",
    "eagle3": "eagle3",
    "mtp": "mtp",
    "draft_model": "draft_model",
}


def write(candidate: Candidate) -> Files:
    """Returns the launch script of one replica; of two pools, one of each and the router's."""
    need_backend(candidate, "vllm", "vllm")
    files = {
        f"{own.role or 'serve'}.sh": script(
            [*describe(own), *([_SIDE_CHANNEL] if own.role else [])],
            ["vllm", "serve", *arguments(own), "--port", str(PORT)],
        )
        for own in candidate.pools
    }
    return {**files, **pd_router.files(candidate)}


def arguments(candidate: Candidate) -> list[str]:
    """Returns what follows ``vllm serve``; UserError for what this version does not know."""
    words = [candidate.model, *flags(candidate)]
    speculation = speculative_config(candidate)
    words += ["--speculative-config", json.dumps(speculation)] if speculation else []
    return words + kv_transfer(candidate)


def kv_transfer(candidate: Candidate) -> list[str]:
    """Returns how an engine hands prompts over, or takes them; nothing where there is one pool."""
    if not candidate.role:
        return []
    role = "kv_producer" if candidate.role == "prefill" else "kv_consumer"
    config = {"kv_connector": "NixlConnector", "kv_role": role}
    return ["--kv-transfer-config", json.dumps(config)]


def speculative_config(candidate: Candidate) -> dict[str, Any]:
    """Returns the value of ``--speculative-config``, empty where nothing drafts."""
    found, given = candidate.engine.speculation, candidate.deployment
    if found is None:
        return {}
    config: dict[str, Any] = {
        "method": METHODS[found.method],
        "num_speculative_tokens": found.num_tokens,
    }
    return config | ({"model": given.speculative_model} if given.speculative_model else {})
