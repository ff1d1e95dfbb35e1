"""Attention seconds of a batch that holds a prefill chunk and decoding sequences together.

FlashAttention-2's variable-length kernel, which vLLM launches once for such a batch, cuts the
queries of every sequence and head into tiles of :data:`TILE_ROWS` rows. A decoding sequence has
one row and still occupies a whole tile, at the speed of prefill; its query heads are not packed
by KV head and its context is not split over processors, as the kernel for pure decode does.
Tiles run in waves over the slots of the GPU. From that follow, with all symbols in
:class:`MixedTiles`:

- decode takes its waves of tiles, half a wave of rounding included, or the time to stream the
  KV cache where that is longer: heads that share KV but run in different waves read it again,
  once the keys of one KV head no longer fit the L2 cache;
- prefill and decode run after each other but for the last wave of the shorter one, of which half
  overlaps; all of it overlaps where both fit into one wave;
- every decoding sequence launches an empty tile for each further tile of the longest chunk.

Tile shape: run_mha_fwd_splitkv_dispatch of flash-attention 2 (Dao-AILab, BSD-3). The four
coefficients are fitted by ``dynosim.hardware_models.calibration.mixed_batch``, which also
prints their held-out error; ``docs/mixed-batches.md`` explains and tabulates it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from dynosim.hardware_models.cards import DATA, read_yaml
from dynosim.hardware_models.gpus import Gpu

TILE_ROWS = 64
"""Query rows of a tile, for every head dimension."""

ROUNDING_WAVES = 0.5
"""A last, partly filled wave takes as long as a full one: half a wave on average."""

OVERLAP = 0.5
"""Share of the shorter last wave in which prefill and decode tiles run side by side."""

RESERVED_SHARED_BYTES = 1024
"""Shared memory that CUDA keeps per resident block (CUDA programming guide, from 8.0 on)."""


@dataclass(frozen=True, kw_only=True)
class TileCoefficients:
    """The fitted part of the model.

    ``tile_s``: fixed seconds of a tile; ``empty_tile_s``: of one without rows;
    ``l2_share``: share of the L2 cache that one KV head's keys and values may fill before they
    are read again; ``reread_share``: how much of the slots' worth of sequences reads again.
    """

    tile_s: float
    empty_tile_s: float
    l2_share: float
    reread_share: float


FLASH_ATTENTION_2 = (8, 12)
"""Major compute capabilities on which vLLM runs this kernel: 9.0 runs FlashAttention-3, 10.x
FlashInfer or TensorRT-LLM kernels, 7.x Triton ones (vLLM: get_flash_attn_version in fa_utils.py,
get_attn_backend_cls in platforms/cuda.py)."""


@dataclass(frozen=True, kw_only=True)
class GpuSlots:
    """What tiles run on: processors, their shared memory, the L2 cache of the whole GPU."""

    sms: int
    shared_bytes: int
    l2_bytes: int


class MixedTiles(NamedTuple):
    """The constants of one (GPU, model shard); made by :func:`mixed_tiles`.

    Seconds are sums over all attention layers. A tuple, for it is unpacked once a step.
    """

    waves_per_row: float
    """Waves of one tile per query head: heads / slots."""
    tile_s: float
    """Fixed seconds of one tile."""
    key_s: float
    """Seconds of one tile per key."""
    empty_s: float
    """Seconds of one empty tile."""
    block_keys: float
    """Keys that a tile takes at a time; a shorter context costs as much."""
    window: float
    """Keys that windowed layers see."""
    windowed_share: float
    """Share of the layers that have a window."""
    l2_keys: float
    """Keys of one KV head, over all sequences, that the L2 cache holds."""
    shared_heads: float
    """Further query heads of each KV head: how often its cache may be read again."""
    reread_per_sequence: float
    """Share of those heads that falls into other waves, per decoding sequence."""


def mixed_attention_s(
    prefill_s: float,
    decode_s: float,
    *,
    num_decode: int,
    decode_context_tokens: float,
    prefill_tokens: int,
    tiles: MixedTiles | None,
    longest_chunk_tokens: int = 0,
) -> float:
    """Returns attention seconds of one step whose parts alone take the two given times.

    ``decode_context_tokens`` is the sum over the ``num_decode`` sequences, ``prefill_tokens``
    the sum over prefill chunks; ``longest_chunk_tokens`` is that of the longest (0: there is one
    chunk). ``tiles`` None: two kernels, one after the other. The answer is exactly ``prefill_s``
    or ``decode_s`` where the other part is absent, never below either, and grows with both.
    """
    if num_decode <= 0 or decode_s <= 0.0:
        return prefill_s
    if prefill_tokens <= 0 or prefill_s <= 0.0:
        return decode_s
    if tiles is None:
        return prefill_s + decode_s
    waves_per_row = tiles.waves_per_row
    waves = num_decode * waves_per_row
    busy = _decode_in_tiles_s(decode_s, num_decode, decode_context_tokens, waves, tiles)
    prefill_waves = -(-prefill_tokens // TILE_ROWS) * waves_per_row
    prefill_tail = prefill_s / prefill_waves if prefill_waves > 1.0 else prefill_s
    tail = busy / waves if waves > 1.0 else busy
    if prefill_tail < tail:
        tail = prefill_tail
    if waves + prefill_waves > 1.0:
        tail *= OVERLAP
    empty_rows = -(-(longest_chunk_tokens or prefill_tokens) // TILE_ROWS) - 1
    seconds = prefill_s + busy - tail + tiles.empty_s * waves * empty_rows
    # In exact arithmetic the sum is never below either part.
    longer = prefill_s if prefill_s > busy else busy
    return seconds if seconds > longer else longer


def _decode_in_tiles_s(
    decode_s: float, num_decode: int, context_tokens: float, waves: float, tiles: MixedTiles
) -> float:
    """Returns seconds of the decode part at the speed of prefill tiles, without the prefill."""
    # Called once a step: unpacking is cheaper than ten attributes.
    _, tile_s, key_s, _, block, window, windowed, l2_keys, shared_heads, reread = tiles
    keys = context_tokens / num_decode + 0.5 * block
    if keys < block:
        keys = block
    if keys > window:
        keys += windowed * (window - keys)
    rounded = waves + ROUNDING_WAVES if waves > 1.0 else waves * (1.0 + ROUNDING_WAVES)
    busy = (tile_s + key_s * keys) * (rounded if rounded > 1.0 else 1.0)
    crowding = num_decode * keys / l2_keys
    crowding *= crowding
    reread *= num_decode
    again = shared_heads * (reread if reread < 1.0 else 1.0) * crowding / (1.0 + crowding)
    streaming = decode_s * (1.0 + again)
    return streaming if streaming > busy else busy


def mixed_tiles(
    gpu: Gpu,
    backend: str,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    layers: int,
    prefill_s_per_pair: float,
    kv_element_bytes: float = 2.0,
    windowed_layers: int = 0,
    window: int | None = None,
) -> MixedTiles | None:
    """Returns the constants of attention on one GPU, or None where the parts simply add up.

    ``heads`` and ``kv_heads`` are those of one tensor-parallel shard, ``layers`` all attention
    layers, ``windowed_layers`` of them with a ``window``. ``prefill_s_per_pair`` are seconds of
    one layer per (query, key) pair of a prefill that fills the GPU, all heads of the shard
    together: a chunk of 2,048 behind 16,384 is meant. None for backends that launch prefill and
    decode apart, for GPUs outside :data:`FLASH_ATTENTION_2` and for 8-bit caches: these run other
    kernels (Hopper's FlashAttention-3 packs heads and splits contexts in mixed batches too).
    """
    slots = gpu_slots(gpu)
    if backend != "vllm" or slots is None or kv_element_bytes < 2.0:
        return None
    return tiles_of(
        coefficients(),
        slots,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        layers=layers,
        prefill_s_per_pair=prefill_s_per_pair,
        windowed_layers=windowed_layers,
        window=window,
    )


def tiles_of(
    fitted: TileCoefficients,
    gpu: GpuSlots,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    layers: int,
    prefill_s_per_pair: float,
    windowed_layers: int = 0,
    window: int | None = None,
) -> MixedTiles:
    """Returns the constants for given coefficients; arguments as in :func:`mixed_tiles`."""
    slots = gpu.sms * tiles_per_sm(gpu.shared_bytes, head_dim)
    return MixedTiles(
        waves_per_row=heads / slots,
        tile_s=layers * fitted.tile_s,
        # All slots together advance by slots / heads tiles' keys in the time of one.
        key_s=layers * prefill_s_per_pair * TILE_ROWS * slots / heads,
        empty_s=layers * fitted.empty_tile_s,
        block_keys=float(block_keys(head_dim)),
        window=float("inf") if window is None else float(window),
        windowed_share=windowed_layers / layers,
        l2_keys=fitted.l2_share * gpu.l2_bytes / (4.0 * head_dim),
        shared_heads=heads / kv_heads - 1.0,
        reread_per_sequence=fitted.reread_share / slots,
    )


def block_keys(head_dim: int) -> int:
    """Returns the keys that the kernel's tile takes at a time."""
    return 256 if head_dim <= 64 else 128 if head_dim <= 128 else 64


def tiles_per_sm(shared_bytes: int, head_dim: int) -> int:
    """Returns how many tiles of 16-bit queries, keys and values fit a processor's memory."""
    tile = 2 * head_dim * (TILE_ROWS + 2 * block_keys(head_dim))
    return max(1, shared_bytes // (tile + RESERVED_SHARED_BYTES))


@lru_cache(maxsize=1)
def coefficients() -> TileCoefficients:
    """Returns the shipped fit, ``data/mixed_batch.yaml``."""
    values = read_yaml(DATA / "mixed_batch.yaml")["coefficients"]
    return TileCoefficients(**{name: float(value) for name, value in values.items()})


def gpu_slots(gpu: Gpu) -> GpuSlots | None:
    """Returns the slots of a GPU that runs this kernel under vLLM, None for any other."""
    sms, shared, l2 = gpu.multiprocessors, gpu.multiprocessor_shared_bytes, gpu.l2_cache_bytes
    if int(gpu.compute_capability) not in FLASH_ATTENTION_2 or not (sms and shared and l2):
        return None
    return GpuSlots(sms=sms, shared_bytes=shared, l2_bytes=l2)
