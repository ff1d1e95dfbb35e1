"""How prefill and decode attention of one engine meet in a step, and what that rests on."""

from __future__ import annotations

from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.timing.batch_grid import MeasuredMix
from dynosim.hardware_models.timing.mixed import MixedTiles, mixed_tiles
from dynosim.hardware_models.timing.ops import Attention
from dynosim.hardware_models.timing.prefill_curve import PrefillCurve, pairs
from dynosim.hardware_models.timing.source import OpSource, Priced, weakest
from dynosim.hardware_models.timing.tables import MissingTable
from dynosim.hardware_models.timing.uneven_decode import UnevenDecode

NAME = "mixed attention"

FITTED_ON = ("rtx_4090", "rtx_pro_6000_server")
"""GPUs whose measured mixed batches the model's coefficients were fitted to
(``docs/mixed-batches.md``)."""

FULL_CHUNK = (2048, 16384)
"""A chunk and its prefix that fill any GPU: prefill's speed per (query, key) pair is read there."""


def mixed_attention(
    gpu: Gpu,
    backend: str,
    attention: tuple[Attention, ...],
    curves: tuple[PrefillCurve, ...],
    sources: tuple[OpSource, ...],
) -> Priced[MixedTiles | MeasuredMix | None] | None:
    """Returns the tiles of a mixed step, None in it where the parts add up; None: no attention.

    ``curves`` are the prefill curves of ``attention``, ``sources`` what the parts rest on. Mixed
    batches that the user measured go before tiles.
    """
    if not attention:
        return None
    if (own := _own(gpu, backend, attention)) is not None:
        return Priced(own.value, own.source)
    tiles = _tiles(gpu, backend, attention, curves)
    if tiles is not None:
        measured = gpu.key in FITTED_ON
        detail = (
            "waves of FlashAttention-2 tiles fitted to vLLM 0.19.0 on RTX 4090 and RTX PRO 6000"
        )
        return Priced(tiles, OpSource(NAME, "measured" if measured else "transferred", detail))
    detail = "prefill and decode attention added, as kernels launched one after the other"
    source = weakest(sources)
    if backend == "vllm":
        # One kernel serves both, and nobody measured what that costs here.
        detail += "; assumed, mixed batches of these kernels were not measured"
        source = "transferred" if source == "measured" else source
    return Priced(None, OpSource(NAME, source, detail))


def _own(gpu: Gpu, backend: str, attention: tuple[Attention, ...]) -> Priced[MeasuredMix] | None:
    if not gpu.own_tables:
        return None
    from dynosim.hardware_models.timing.own_source import own_source

    try:
        return own_source(gpu, backend).mixed_attention(attention)
    except MissingTable:
        return None


def uneven_decode(
    gpu: Gpu, backend: str, attention: tuple[Attention, ...]
) -> Priced[UnevenDecode] | None:
    """Returns what unequal contexts add to decode, None where the user measured nothing of it."""
    if not gpu.own_tables:
        return None
    from dynosim.hardware_models.timing.own_source import own_source

    try:
        return own_source(gpu, backend).uneven_decode(attention)
    except MissingTable:
        return None


def _tiles(
    gpu: Gpu, backend: str, attention: tuple[Attention, ...], curves: tuple[PrefillCurve, ...]
) -> MixedTiles | None:
    """Returns the tiles of all layers at the speed of the layers that see most, None for MLA."""
    found = [(op, c) for op, c in zip(attention, curves, strict=True) if op.shape.kind == "gqa"]
    if not found:
        return None
    widest, curve = max(found, key=lambda pair: pair[0].shape.window or float("inf"))
    windowed = [op for op, _ in found if op.shape.window is not None]
    shape, (chunk, prefix) = widest.shape, FULL_CHUNK
    return mixed_tiles(
        gpu,
        backend,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.qk_dim,
        layers=sum(op.count for op, _ in found),
        prefill_s_per_pair=curve.seconds(chunk, prefix) / pairs(chunk, prefix, shape.window),
        kv_element_bytes=shape.kv_element_bytes,
        windowed_layers=sum(op.count for op in windowed),
        window=windowed[0].shape.window if windowed else None,
    )
