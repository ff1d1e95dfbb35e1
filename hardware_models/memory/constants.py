"""Memory constants of a backend at a version, read from its card."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dynosim.hardware_models.backends import rows_by_version
from dynosim.hardware_models.cards import Source, read_card, source_of


@dataclass(frozen=True, kw_only=True)
class MemoryConstants:
    """Sizes in bytes per GPU; sources stand in ``data/memory/*.yaml``.

    ``pool`` is the rule by which the KV pool is sized. ``bytes_per_logit`` is what sampling
    takes per sequence and vocabulary entry at its peak, ``base_bytes`` what is allocated beside
    the model. ``holds_moe_workspace``: the experts' buffers stay allocated between steps.
    ``context_bytes`` is gone before the engine looks (CUDA context, other ranks' handles).
    ``measured_version`` is the release the constants were measured with.
    """

    pool: str
    measured_version: str
    base_bytes: int
    bytes_per_logit: float
    holds_moe_workspace: bool
    non_torch_bytes: int
    non_torch_tensor_parallel_bytes: int
    non_torch_pcie_bytes: int
    non_torch_pipeline_bytes: int
    context_bytes: int
    context_parallel_bytes: int
    graphs_deducted: bool
    graph_base_bytes: int
    graph_bytes_per_layer: int
    graph_moe_bytes: int
    mxfp4_intermediate_multiple: int
    mxfp4_warm_up_bytes_per_token: int
    tokens_from_concurrency: bool


@lru_cache(maxsize=64)
def memory_constants(backend: str, version: str) -> MemoryConstants:
    """Returns the constants of ``backend`` (a key of the catalogue) at ``version``."""
    card = read_card("memory", backend)
    rows = rows_by_version(card["versions"], version)
    return MemoryConstants(pool=card["pool"], **{key: row["value"] for key, row in rows.items()})


def memory_sources(backend: str, version: str) -> dict[str, Source]:
    """Returns constant -> source at ``version``."""
    card = read_card("memory", backend)
    rows = rows_by_version(card["versions"], version)
    return {key: source_of(card, row) for key, row in rows.items()}
