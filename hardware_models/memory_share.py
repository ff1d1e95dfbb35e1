"""The share of a GPU's memory that an engine takes, where that depends on more than the GPU."""

from __future__ import annotations

from dynosim.hardware_models.backends import Backend, reserve_mib
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.graph_sizes import largest_graph, prefill_sizes
from dynosim.hardware_models.llm.architecture import LlmArchitecture

_MIB = 2**20


def default_share(args: EngineArgs, model: LlmArchitecture, gpu: Gpu, backend: Backend) -> float:
    """Returns SGLang's ``mem_fraction_static``: what a reserve for activations and graphs leaves.

    ``args`` have their token budget filled in. Source: the ``memory_reserve`` of its card.
    """
    rows = reserve_mib(backend.name, gpu)
    tokens = args.max_num_batched_tokens or backend.max_num_batched_tokens
    reserve = rows["constant_mib"]
    reserve += rows["mib_per_prefill_token"] * max(tokens, rows["least_prefill_tokens"])
    reserve += rows["mib_per_graph_sequence"] * largest_graph(args, backend)
    reserve += rows["mib_per_gpu_of_replica"] * args.gpus_per_replica
    if graphs := prefill_sizes(args, backend):
        each = rows["mib_per_prefill_graph"]
        reserve += each * len(graphs) if model.mla is None else rows["mla_prefill_graphs_mib"]
    total = gpu.memory_bytes / _MIB
    return round((total - max(reserve, rows["least_mib"])) / total, 3)
