"""Which exchange of tokens data-parallel ranks make around a layer's experts."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.data_parallel import data_parallel_rules, has_multi_node_nvlink
from dynosim.hardware_models.engine_args import All2AllBackend
from dynosim.hardware_models.llm.architecture import LayerGroup
from dynosim.hardware_models.resolve import ResolvedEngine

GATHERED: All2AllBackend = "allgather_reducescatter"
"""Every rank gets the tokens of all, and its share of the sums."""


@dataclass(frozen=True)
class Exchange:
    """``count`` layers' dispatch of tokens to experts and combination of what these return.

    ``ranks`` data-parallel ranks on ``gpus`` GPUs take part. ``dtype`` is that of the experts,
    which kernels that quantise before they send go by.
    """

    count: int
    kernel: All2AllBackend
    ranks: int
    gpus: int
    hidden_size: int
    topk: int
    num_experts: int
    dtype: str


def exchange_of(engine: ResolvedEngine, group: LayerGroup) -> Exchange:
    """Returns the exchange around the MLPs of a group of layers; the model has experts."""
    moe = engine.model.moe
    assert moe is not None, "only ranks that share experts exchange tokens"
    return Exchange(
        count=group.count,
        kernel=all2all_backend(engine) if group.is_moe else GATHERED,
        ranks=engine.ranks_in_step,
        gpus=engine.expert_gpus,
        hidden_size=engine.model.hidden_size,
        topk=moe.experts_per_token,
        num_experts=moe.num_experts,
        dtype=engine.model.quantization.experts,
    )


def all2all_backend(engine: ResolvedEngine) -> All2AllBackend:
    """Returns the kernels asked for, else the backend's own choice.

    Without expert parallelism every GPU holds a slice of every expert and needs every token.
    """
    args, moe = engine.args, engine.model.moe
    if args.all2all_backend is not None:
        return args.all2all_backend
    rules = data_parallel_rules(engine.backend.name)
    name = rules.all2all_backend
    wide = rules.all2all_backend_multi_node_nvlink
    if wide and has_multi_node_nvlink(engine.gpu) and args.enable_expert_parallel and moe:
        name = wide if engine.expert_gpus > moe.experts_per_token else name
    return _KERNELS[name]


_KERNELS: dict[str, All2AllBackend] = {
    "allgather_reducescatter": GATHERED,
    "deepep_high_throughput": "deepep_high_throughput",
    "deepep_low_latency": "deepep_low_latency",
    "nvlink_one_sided": "nvlink_one_sided",
    "nvlink_two_sided": "nvlink_two_sided",
}
