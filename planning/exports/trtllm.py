"""``trtllm-serve``: the command that launches one replica, and its options file."""

from __future__ import annotations

import json
from typing import Any

from dynosim.hardware_models.backends import version_key
from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import (
    PORT,
    Candidate,
    Files,
    describe,
    need_backend,
    need_one_pool,
    script,
)
from dynosim.planning.exports.knobs import flags, keys, launch_card, set_key

OPTIONS = "extra_llm_api_options.yaml"
_DECODING = {
    "ngram": "NGram",
    "eagle": "Eagle",
    "eagle3": "Eagle",
    "mtp": "MTP",
    "draft_model": "DraftTarget",
}


def write(candidate: Candidate) -> Files:
    """Returns the launch script of one replica, and the options file where one is needed."""
    need_one_pool(candidate, "trtllm")
    need_backend(candidate, "trtllm", "trtllm")
    extra = options(candidate)
    argv = ["trtllm-serve", candidate.model, *arguments(candidate), "--port", str(PORT)]
    files = {OPTIONS: yaml_text(extra)} if extra else {}
    argv += ["--extra_llm_api_options", OPTIONS] if extra else []
    return {"serve.sh": script(describe(candidate), argv), **files}


def arguments(candidate: Candidate) -> list[str]:
    """Returns the options of the command; UserError for what this version does not know."""
    _check(candidate)
    d = candidate.deployment
    gpus = d.tensor_parallel_size * d.data_parallel_size
    words = ["--tp_size", str(gpus)] if gpus > 1 else []
    words += ["--ep_size", str(gpus)] if d.enable_expert_parallel else []
    return words + flags(candidate)


def options(candidate: Candidate) -> dict[str, Any]:
    """Returns what the options file holds, as nested keys."""
    d = candidate.deployment
    extra = keys(candidate)
    if d.data_parallel_size > 1:
        extra["enable_attention_dp"] = True
    if d.async_scheduling is False:
        extra["disable_overlap_scheduler"] = True
    if d.enforce_eager:
        extra["cuda_graph_config"] = None
    if d.num_gpu_blocks_override is not None:
        tokens = d.num_gpu_blocks_override * candidate.engine.block_size
        set_key(extra, "kv_cache_config.max_tokens", tokens)
    return extra | _speculation(candidate)


def _check(candidate: Candidate) -> None:
    oldest = str(launch_card("trtllm")["oldest_version"])
    if version_key(candidate.version) < version_key(oldest):
        raise UserError(
            f"trtllm {candidate.version} serves engines built beforehand, not checkpoints",
            where="backend_version",
            hint=f"allowed: {oldest} or later",
        )
    is_dense = not candidate.engine.model.is_moe
    if candidate.deployment.data_parallel_size > 1 and is_dense:
        raise UserError(
            "trtllm has data-parallel attention for models with experts only",
            where="data_parallel_size",
            hint="use replicas",
        )
    if candidate.deployment.quantization is not None:
        raise UserError(
            "trtllm takes a checkpoint that is quantised already",
            where="quantization",
            hint="name the quantised checkpoint as model",
        )


def _speculation(candidate: Candidate) -> dict[str, Any]:
    found, given = candidate.engine.speculation, candidate.deployment
    if found is None:
        return {}
    config: dict[str, Any] = {"decoding_type": _DECODING[found.method]}
    size = "num_nextn_predict_layers" if found.method == "mtp" else "max_draft_len"
    config[size] = found.num_tokens
    if given.speculative_model:
        config["speculative_model_dir"] = given.speculative_model
    if found.method in ("eagle", "eagle3"):
        config["eagle3_one_model"] = found.method == "eagle3"
    return {"speculative_config": config}


def yaml_text(value: Any) -> str:
    """Returns YAML in the order of the mappings."""
    import yaml

    # A value that stands twice must not become an anchor: a copy of plain values has none.
    copied = json.loads(json.dumps(value))
    return str(yaml.safe_dump(copied, sort_keys=False, width=100))
