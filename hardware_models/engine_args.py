"""The arguments of one serving engine, in vLLM's spelling: what memory and time depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

Positive = Annotated[int, Ge(1)]

KvCacheDtype = Literal["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8"]
Sampling = Literal["greedy", "top_p"]
SpeculativeMethod = Literal["ngram", "eagle", "eagle3", "mtp", "draft_model"]
ExpertDistribution = Literal["balanced", "power_law_1.01", "power_law_1.2"]
MoeBackend = Literal["trtllm"]
All2AllBackend = Literal[
    "allgather_reducescatter",
    "deepep_high_throughput",
    "deepep_low_latency",
    "nvlink_one_sided",
    "nvlink_two_sided",
]


@dataclass(frozen=True, kw_only=True)
class EngineArgs:
    """One engine replica. ``None`` means the backend's own default for its version.

    ``model`` is a Hugging Face hub name of the catalogue or a path to a ``config.json``;
    ``gpu`` any spelling that :func:`dynosim.hardware_models.gpus.get_gpu` knows.
    """

    model: str
    """Hugging Face name (`dynosim list models`) or the path of a config.json."""
    gpu: str
    """GPU in any usual spelling (`dynosim list gpus`) or the path of a card (card.yaml)."""
    kernel_tables: str | None = None
    """Folder of kernel tables measured on this GPU, asked before the shipped ones."""
    backend: str = "vllm"
    """Serving engine (`dynosim list backends`)."""
    backend_version: str | None = None
    """Version of the engine; by default the newest one known."""
    tensor_parallel_size: Positive = 1
    """GPUs that share every layer."""
    tensor_parallel_across_nodes: bool = False
    """Let GPUs of several nodes share every layer, over the network."""
    pipeline_parallel_size: Positive = 1
    """Stages that the layers are cut into."""
    data_parallel_size: Positive = 1
    """Ranks with a scheduler and KV cache each (limits are a rank's); they share any experts."""
    enable_expert_parallel: bool = False
    """Give each GPU whole experts rather than a slice of every expert."""
    expert_distribution: ExpertDistribution = "power_law_1.2"
    """How evenly tokens spread over experts; real routers are skewed."""
    moe_backend: MoeBackend | None = None
    """Kernels of fp8 experts on Blackwell; by default those that were measured (trtllm)."""
    all2all_backend: All2AllBackend | None = None
    """What carries tokens between ranks and experts; by default the backend's own."""
    load_balance_method: str | None = None
    """How requests are spread over data-parallel ranks; by default the backend's own."""
    quantization: str | None = None
    """Weight format; by default the checkpoint's own."""
    kv_cache_dtype: KvCacheDtype = "auto"
    """Element type of the KV cache; auto is that of the checkpoint."""
    max_model_len: Positive | None = None
    """Longest prompt plus answer in tokens; by default what the model declares."""
    max_num_seqs: Positive | None = None
    """Sequences that one engine runs at once; by default the backend's own."""
    max_num_batched_tokens: Positive | None = None
    """Token budget of one engine step; by default the backend's own."""
    gpu_memory_utilization: Annotated[float, Gt(0), Le(1)] | None = None
    """Share of the GPU's memory that the engine may take; by default the backend's own."""
    block_size: Positive | None = None
    """Tokens in one KV-cache block; by default the backend's own."""
    enable_prefix_caching: bool | None = None
    """Reuse the KV cache of prompt beginnings seen before; by default as the backend does."""
    enable_chunked_prefill: bool | None = None
    """Split long prompts over several steps; by default as the backend does."""
    sampling: Sampling = "greedy"
    """How tokens are drawn; top_p (or top_k) sorts the whole vocabulary for each of them (vllm)."""
    enforce_eager: bool = False
    """Launch kernel by kernel instead of replaying CUDA graphs."""
    cuda_graph_padding: bool | None = None
    """Pad decode batches to the next CUDA graph; by default as the backend does."""
    async_scheduling: bool | None = None
    """Form each batch while the one before it runs; by default as the backend's version does."""
    scheduling_policy: str | None = None
    """Order in which waiting requests enter; by default the backend's own."""
    long_prefill_token_threshold: Annotated[int, Ge(0)] = 0
    """At most this many tokens of one prompt in a step; 0 is no bound."""
    enable_mixed_chunk: bool = False
    """Let decodes take part in prefill batches (sglang; others always do)."""
    api_server_count: Positive = 1
    """API processes that take requests in and stream the answers of one engine."""
    stream_interval: Positive = 1
    """Tokens of an answer that are written to its stream at a time, after the first."""
    schedule_conservativeness: Annotated[float, Ge(0)] = 1.0
    """How much room entering requests leave for outputs to come (sglang)."""
    scheduler_recv_interval: Positive = 1
    """Decode steps between two looks at who has arrived (sglang)."""
    batch_wait_timeout_iters: Annotated[int, Ge(0)] = 0
    """Steps that prompts wait for each other while others decode (trtllm)."""
    batch_wait_max_tokens_ratio: Annotated[float, Ge(0), Le(1)] = 0.0
    """Share of the token budget at which prompts wait no longer (trtllm)."""
    attention_dp_enable_balance: bool = False
    """Hold a rank's prompts until all data-parallel ranks have one (trtllm)."""
    attention_dp_timeout_iters: Annotated[int, Ge(0)] = 50
    """Steps after which prompts of some ranks go without those of others (trtllm)."""
    attention_dp_batching_wait_iters: Annotated[int, Ge(0)] = 10
    """Steps that prompts wait for more once all ranks have one (trtllm)."""
    calibration: str | None = None
    """File of fitted overheads, or `none`; by default those that dynosim ships."""
    num_gpu_blocks_override: Positive | None = None
    """KV-cache blocks, instead of what memory leaves."""
    kv_cache_memory_bytes: Positive | None = None
    """Bytes of KV cache per GPU, instead of what memory leaves."""
    speculative_method: SpeculativeMethod | None = None
    """What drafts tokens for the model to verify; by default nothing does."""
    num_speculative_tokens: Annotated[int, Ge(0)] | None = None
    """Tokens drafted per sequence and step; 0 is no speculative decoding."""
    speculative_model: str | None = None
    """The model that drafts (draft_model), or the config.json of an EAGLE draft."""
    speculative_acceptance_rate: Annotated[float, Ge(0), Le(1)] | None = None
    """Chance that a draft is accepted where those before it were; by default the method's own."""
    speculative_acceptance_rates: str | None = None
    """Acceptance rates by position as vLLM logs them, e.g. "0.73, 0.52, 0.35", instead of one."""

    @property
    def gpus_per_replica(self) -> int:
        """GPUs that one replica of this engine occupies."""
        stages = self.tensor_parallel_size * self.pipeline_parallel_size
        return stages * self.data_parallel_size
