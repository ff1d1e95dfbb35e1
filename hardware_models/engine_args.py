"""The arguments of one serving engine, in vLLM's spelling: what memory and time depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

Positive = Annotated[int, Ge(1)]

KvCacheDtype = Literal["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8"]


@dataclass(frozen=True, kw_only=True)
class EngineArgs:
    """One engine replica. ``None`` means the backend's own default for its version.

    ``model`` is a Hugging Face hub name of the catalogue or a path to a ``config.json``;
    ``gpu`` any spelling that :func:`dynosim.hardware_models.gpus.get_gpu` knows.
    """

    model: str
    gpu: str
    backend: str = "vllm"
    backend_version: str | None = None
    tensor_parallel_size: Positive = 1
    pipeline_parallel_size: Positive = 1
    enable_expert_parallel: bool = False
    quantization: str | None = None
    kv_cache_dtype: KvCacheDtype = "auto"
    max_model_len: Positive | None = None
    max_num_seqs: Positive | None = None
    max_num_batched_tokens: Positive | None = None
    gpu_memory_utilization: Annotated[float, Gt(0), Le(1)] | None = None
    block_size: Positive = 16
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    num_gpu_blocks_override: Positive | None = None
    kv_cache_memory_bytes: Positive | None = None

    @property
    def gpus_per_replica(self) -> int:
        """GPUs that one replica of this engine occupies."""
        return self.tensor_parallel_size * self.pipeline_parallel_size
