"""``vllm serve``: the command that launches one replica."""

from __future__ import annotations

import json
from typing import Any

from dynosim.planning.exports.base import PORT, Candidate, Files, describe, need_backend, script
from dynosim.planning.exports.knobs import flags

METHODS = {
    "ngram": "ngram",
    "eagle": "eagle",
    "eagle3": "eagle3",
    "mtp": "mtp",
    "draft_model": "draft_model",
}


def write(candidate: Candidate) -> Files:
    """Returns the launch script of one replica."""
    need_backend(candidate, "vllm", "vllm")
    argv = ["vllm", "serve", *arguments(candidate), "--port", str(PORT)]
    return {"serve.sh": script(describe(candidate), argv)}


def arguments(candidate: Candidate) -> list[str]:
    """Returns what follows ``vllm serve``; UserError for what this version does not know."""
    words = [candidate.model, *flags(candidate)]
    speculation = speculative_config(candidate)
    return words + (["--speculative-config", json.dumps(speculation)] if speculation else [])


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
