"""``python -m sglang.launch_server``: the command that launches one replica.

SGLang counts for all data-parallel ranks what dynosim counts for one: GPUs that share a layer where
attention is data-parallel, running requests, and the chunk.
"""

from __future__ import annotations

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports import pd_router
from dynosim.planning.exports.base import PORT, Candidate, Files, describe, need_backend, script
from dynosim.planning.exports.knobs import flags

ALGORITHMS = {
    "ngram": "NGRAM",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "NEXTN",
    "draft_model": "STANDALONE",
}
_TRANSPORTS = {
    "allgather_reducescatter": [],
    "deepep_high_throughput": ["--moe-a2a-backend", "deepep", "--deepep-mode", "normal"],
    "deepep_low_latency": ["--moe-a2a-backend", "deepep", "--deepep-mode", "low_latency"],
}


def write(candidate: Candidate) -> Files:
    """Returns the launch script of one replica; of two pools, one of each and the router's."""
    need_backend(candidate, "sglang", "sglang")
    module = ["python", "-m", "sglang.launch_server"]
    files = {
        f"{own.role or 'serve'}.sh": script(
            describe(own), [*module, *arguments(own), "--port", str(PORT)]
        )
        for own in candidate.pools
    }
    return {**files, **pd_router.files(candidate)}


def arguments(candidate: Candidate) -> list[str]:
    """Returns what follows the module's name; UserError for what this version does not know."""
    words = ["--model-path", candidate.model, *_parallel(candidate), *flags(candidate)]
    role = ["--disaggregation-mode", candidate.role] if candidate.role else []
    return [*words, *_limits(candidate), *_speculation(candidate), *role]


def _parallel(candidate: Candidate) -> list[str]:
    d = candidate.deployment
    ranks_share = d.data_parallel_size > 1 and candidate.engine.model.is_moe
    gpus = d.tensor_parallel_size * (d.data_parallel_size if ranks_share else 1)
    words = ["--tp-size", str(gpus)] if gpus > 1 else []
    if d.data_parallel_size > 1:
        words += ["--dp-size", str(d.data_parallel_size)]
    if ranks_share:
        words.append("--enable-dp-attention")
    if d.enable_expert_parallel:
        words += ["--ep-size", str(gpus)]
    if d.all2all_backend is not None:
        if d.all2all_backend not in _TRANSPORTS:
            raise UserError(
                f"sglang {candidate.version} does not know {d.all2all_backend!r}",
                where="all2all_backend",
                hint=f"allowed: {', '.join(_TRANSPORTS)}",
            )
        words += _TRANSPORTS[d.all2all_backend]
    return words


def _limits(candidate: Candidate) -> list[str]:
    d = candidate.deployment
    ranks = d.data_parallel_size if candidate.engine.model.is_moe else 1
    words = []
    if d.max_num_seqs is not None:
        words += ["--max-running-requests", str(d.max_num_seqs * ranks)]
    if d.enable_chunked_prefill is False:
        words += ["--chunked-prefill-size", "-1"]
        if d.max_num_batched_tokens is not None:
            words += ["--max-prefill-tokens", str(d.max_num_batched_tokens)]
    elif d.max_num_batched_tokens is not None:
        words += ["--chunked-prefill-size", str(d.max_num_batched_tokens * ranks)]
    if d.num_gpu_blocks_override is not None:
        tokens = d.num_gpu_blocks_override * candidate.engine.block_size
        words += ["--max-total-tokens", str(tokens)]
    return words


def _speculation(candidate: Candidate) -> list[str]:
    found, given = candidate.engine.speculation, candidate.deployment
    if found is None:
        return []
    words = ["--speculative-algorithm", ALGORITHMS[found.method]]
    words += ["--speculative-num-draft-tokens", str(found.num_tokens + 1)]
    if found.method != "ngram":
        words += ["--speculative-num-steps", str(found.num_tokens), "--speculative-eagle-topk", "1"]
    if given.speculative_model:
        words += ["--speculative-draft-model-path", given.speculative_model]
    return words
