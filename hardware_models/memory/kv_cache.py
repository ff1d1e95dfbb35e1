"""Pages of the KV cache: how large, in which groups, and how many a request needs.

Layers of one kind share a page table. vLLM cuts the kinds into groups of equally many layers
(the smallest kind's number, padded where it does not divide the others), so that a block is the
same number of bytes for all: Gemma 3 27B's 62 layers take 70 slots.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.llm.architecture import LayerGroup, LlmArchitecture
from dynosim.hardware_models.memory.stages import Stage
from dynosim.hardware_models.memory.weights import dtype_bytes, key_value_heads_per_rank
from dynosim.hardware_models.resolve import ResolvedEngine

_MAMBA_BLOCK_MULTIPLE = 16
# Kinds nearly equally large are padded to the larger (vLLM kv_cache_utils, 2026).
_NEARLY_EQUAL = 1.5


@dataclass(frozen=True, kw_only=True)
class PageGroup:
    """``layers`` layers (padding included) that share page tables of one kind."""

    layers: int
    window: int | None = None
    is_state: bool = False


@dataclass(frozen=True, kw_only=True)
class KvLayout:
    """The groups of one pipeline stage, and the bytes of one page of one layer.

    ``draft_page_bytes`` are those of all layers that draft: they cache every token, too.
    """

    groups: tuple[PageGroup, ...]
    block_size: int
    page_bytes: int
    draft_page_bytes: int = 0

    @property
    def block_bytes(self) -> int:
        """Bytes of one block: one page of every layer of a group."""
        layers = max((g.layers for g in self.groups), default=0)
        return self.page_bytes * layers + self.draft_page_bytes

    def pages_per_request(self, max_model_len: int, max_num_batched_tokens: int) -> int:
        """Blocks that a request of ``max_model_len`` tokens needs at most, over all groups."""
        return sum(
            self._pages(group, max_model_len, max_num_batched_tokens) for group in self.groups
        )

    def _pages(self, group: PageGroup, longest: int, budget: int) -> int:
        if group.is_state:
            return 1
        if group.window is None:
            return -(-longest // self.block_size)
        # A window keeps what a step in flight may still read; its first page may be cut off.
        alive = min(group.window - 1 + budget, longest)
        return -(-alive // self.block_size) + 1


def kv_bytes_per_element(engine: ResolvedEngine) -> int:
    """Bytes of one cached element: the model's dtype, or one for fp8 and int8."""
    dtype = engine.args.kv_cache_dtype
    if dtype == "auto":
        return dtype_bytes(engine.model.base_dtype)
    return 2 if dtype == "bfloat16" else 1


def layer_kv_bytes_per_token(engine: ResolvedEngine) -> int:
    """Bytes that one attention layer caches per token on one GPU.

    Key-value heads are split until a rank holds one, then copied; the latent of multi-head
    latent attention is copied to every rank.
    """
    model, width = engine.model, kv_bytes_per_element(engine)
    if model.mla is not None:
        return model.mla.latent_dim * width
    heads = key_value_heads_per_rank(model, engine.args.tensor_parallel_size)
    return 2 * heads * model.head_dim * width


def kv_bytes_per_token(engine: ResolvedEngine, stage: Stage) -> int:
    """Bytes that the layers of a stage cache per token on one GPU, windows not counted."""
    layers = sum(count for group, count in stage.layers if group.mixer in ("attention", "mla"))
    return layers * layer_kv_bytes_per_token(engine)


def kv_layout(engine: ResolvedEngine, stage: Stage) -> KvLayout:
    """Returns how vLLM lays out the KV cache of a stage on one GPU."""
    per_token = layer_kv_bytes_per_token(engine)
    kinds: dict[tuple[int | None, bool], int] = {}
    for group, count in stage.layers:
        if group.mixer != "none":
            kind = _kind(group)
            kinds[kind] = kinds.get(kind, 0) + count
    block_size = engine.block_size
    if any(is_state for _, is_state in kinds):
        block_size = _state_block_size(engine, per_token, block_size)
    return KvLayout(groups=_groups(kinds), block_size=block_size, page_bytes=per_token * block_size)


def _kind(group: LayerGroup) -> tuple[int | None, bool]:
    return group.window, group.mixer in ("linear", "mamba")


def _groups(kinds: dict[tuple[int | None, bool], int]) -> tuple[PageGroup, ...]:
    if not kinds:
        return ()
    least, most = min(kinds.values()), max(kinds.values())
    size = most if most < least * _NEARLY_EQUAL else least
    return tuple(
        PageGroup(layers=size, window=window, is_state=is_state)
        for (window, is_state), count in kinds.items()
        for _ in range(-(-count // size))
    )


def _state_block_size(engine: ResolvedEngine, per_token: int, block_size: int) -> int:
    """Tokens per block so that a page of attention is at least as large as a layer's state."""
    state = state_bytes(engine.model, engine.args.tensor_parallel_size)
    multiple = max(block_size, _MAMBA_BLOCK_MULTIPLE)
    return max(block_size, -(-state // (per_token * multiple)) * multiple)


def state_bytes(model: LlmArchitecture, tp: int) -> int:
    shape = model.linear_state
    if shape is None:
        return 0
    convolution = shape.conv_elements * dtype_bytes(model.base_dtype)
    return (shape.state_elements * shape.state_dtype_bytes + convolution) // tp
