"""How a backend runs data-parallel ranks: rules as data, ``data/data_parallel.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dynosim.hardware_models.cards import DATA, Source, read_yaml, source_of
from dynosim.hardware_models.gpus import Gpu


@dataclass(frozen=True, kw_only=True)
class DataParallelRules:
    """One backend's rules for ranks that share experts.

    ``all2all_backend`` carries tokens to experts; ``all2all_backend_multi_node_nvlink`` instead
    where NVLink joins nodes. ``load_balance_method`` names a module of
    :mod:`dynosim.sim.cluster.balancers`. With ``gathers_mlp`` dense and shared MLPs run on the
    tokens of all ranks, cut over all GPUs, else each rank runs its own. ``limits_are_shared``: the
    token budget is split over the ranks. ``conservativeness_factor`` multiplies SGLang's
    ``schedule_conservativeness``.
    """

    all2all_backend: str
    load_balance_method: str
    gathers_mlp: bool
    limits_are_shared: bool
    conservativeness_factor: float
    all2all_backend_multi_node_nvlink: str | None = None


@lru_cache(maxsize=16)
def data_parallel_rules(backend: str) -> DataParallelRules:
    """Returns the rules of ``backend``; vLLM's for a backend without any of its own."""
    card = _card()
    rows = card.get(backend) or card["vllm"]
    return DataParallelRules(**{name: row["value"] for name, row in rows.items()})


def data_parallel_sources(backend: str) -> dict[str, Source]:
    """Returns rule -> where it was read."""
    card = _card()
    rows = card.get(backend) or card["vllm"]
    return {name: source_of(card, row) for name, row in rows.items()}


def has_multi_node_nvlink(gpu: Gpu) -> bool:
    """Whether NVLink joins this GPU's nodes."""
    return gpu.key in _card()["multi_node_nvlink"]["value"]


def fused_moe_chunk_tokens() -> int:
    """Returns the most tokens that one launch of the expert kernels takes."""
    return int(_card()["fused_moe_chunk_tokens"]["value"])


@lru_cache(maxsize=1)
def _card() -> dict[str, Any]:
    return read_yaml(DATA / "data_parallel.yaml")
