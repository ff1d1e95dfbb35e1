"""Puts an engine together on a device: weights, KV cache, graphs."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.measure.lab import Lab
from dynosim.sim.engine.limits import EngineLimits
from dynosim.verification.torch_engine.attention import FlashAttention, attention_for
from dynosim.verification.torch_engine.decode_graphs import DecodeGraphs, cuda_capture
from dynosim.verification.torch_engine.decoder import Decoder
from dynosim.verification.torch_engine.decoder_config import DecoderConfig
from dynosim.verification.torch_engine.engine import BuiltinEngine
from dynosim.verification.torch_engine.request import Request
from dynosim.verification.torch_engine.runner import TorchRunner
from dynosim.verification.torch_engine.scheduler import Batch, check_limits
from dynosim.verification.torch_engine.weights import random_weights

Tensor = Any

GRAPH_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)
"""Batch sizes of which a decode step is captured; larger ones are launched kernel by kernel."""

LEAST_WIDTH_TOKENS = 512
"""Where blocks are copied together, graphs are captured for so many tokens of context, and for
every doubling."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What an engine is built from.

    ``num_blocks`` are those that requests can hold; None: what ``memory_share`` of the GPU's memory
    leaves beside weights and the largest step. ``dtype`` is a name of PyTorch's.
    """

    model: DecoderConfig
    limits: EngineLimits
    max_model_len: int
    dtype: str
    num_blocks: int | None
    memory_share: float = 0.9
    graphs: bool = True


def build_engine(lab: Lab, options: EngineOptions) -> BuiltinEngine:
    """Returns the engine, its graphs captured; UserError where the device cannot run it."""
    check_limits(options.limits)
    if lab.on_gpu and options.dtype == "float32":
        raise UserError(
            "FlashAttention has no float32", where="dtype", hint="allowed: bfloat16, float16"
        )
    torch, model, limits = lab.torch, options.model, options.limits
    with torch.inference_mode():
        weights = random_weights(torch, model, lab.device, lab.dtype(options.dtype))
        heads = (model.num_heads, model.num_kv_heads, model.head_dim)
        attention = attention_for(torch, lab.device, limits.block_size, heads)
        decoder = Decoder(torch, model, weights, attention, options.max_model_len)
        num_blocks = options.num_blocks or _blocks_that_fit(lab, decoder, options)
        # One more, which pads batches and which no request gets.
        pages = _pages(lab, options, num_blocks + 1)
        graphs = None
        # Sequence by sequence, lengths are read back: nothing to capture.
        if options.graphs and isinstance(attention, FlashAttention):
            sizes, widths = graph_sizes(limits.max_num_seqs), list(_widths(attention, options))
            graphs = DecodeGraphs(torch, decoder, pages, sizes, widths, cuda_capture(torch))
    return BuiltinEngine(limits, num_blocks, TorchRunner(torch, decoder, pages, graphs))


def graph_sizes(max_num_seqs: int) -> list[int]:
    """Returns the batch sizes to capture: up to the first that holds ``max_num_seqs``."""
    below = [size for size in GRAPH_SIZES if size < max_num_seqs]
    return [*below, *GRAPH_SIZES[len(below) : len(below) + 1]]


def _widths(attention: FlashAttention, options: EngineOptions) -> Iterator[int]:
    """Yields the table widths to capture; one where the table alone is read, whatever its width."""
    block_size = options.limits.block_size
    width = -(-options.max_model_len // block_size)
    yield width
    if not attention.reads_pages:
        tokens = LEAST_WIDTH_TOKENS
        while tokens < options.max_model_len:
            yield -(-tokens // block_size)
            tokens *= 2


def _pages(lab: Lab, options: EngineOptions, num_blocks: int) -> Tensor:
    """Returns an empty KV cache; zeros, as what pads a batch is read too."""
    model, block_size = options.model, options.limits.block_size
    shape = (model.num_layers, 2, num_blocks, block_size, model.num_kv_heads, model.head_dim)
    needed, free = lab.bytes_of(options.dtype, *shape), lab.free_bytes()
    if needed > free:
        raise UserError(
            f"a KV cache of {needed / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB are free",
            where="num_gpu_blocks_override",
            hint="fewer blocks",
        )
    return lab.torch.zeros(shape, dtype=lab.dtype(options.dtype), device=lab.device)


def _blocks_that_fit(lab: Lab, decoder: Decoder, options: EngineOptions) -> int:
    """Returns the blocks that memory leaves, after a step of as many tokens as there can be."""
    torch, limits = lab.torch, options.limits
    tokens = min(limits.max_num_batched_tokens, options.max_model_len)
    blocks = -(-tokens // limits.block_size)
    torch.cuda.reset_peak_memory_stats(lab.device)
    request = Request(0, [0] * tokens, 1)
    request.blocks = array("i", range(blocks))
    TorchRunner(torch, decoder, _pages(lab, options, blocks + 1)).run(Batch([(request, tokens)]))
    peak = torch.cuda.max_memory_allocated(lab.device)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(lab.device)
    outside = total - free - torch.cuda.memory_reserved(lab.device)
    room = options.memory_share * total - outside - peak
    block_bytes = lab.bytes_of(
        options.dtype, limits.block_size, options.model.kv_elements_per_token
    )
    if room < 2 * block_bytes:
        raise UserError(
            f"no room for a KV cache beside weights and steps of {peak / 2**30:.1f} GiB",
            where="gpu_memory_utilization",
            hint="a larger share, or a smaller model",
        )
    return int(room // block_bytes) - 1
