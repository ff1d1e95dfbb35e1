"""What ``--help`` says of each field, and the short spellings that users know."""

from __future__ import annotations

ALIASES: dict[str, tuple[str, ...]] = {
    "tensor_parallel_size": ("-tp",),
    "pipeline_parallel_size": ("-pp",),
    "random_input_len": ("--isl",),
    "random_output_len": ("--osl",),
}

HELP: dict[str, str] = {
    "model": "Hugging Face name (`dynosim list models`) or the path of a config.json.",
    "gpu": "GPU in any usual spelling (`dynosim list gpus`).",
    "backend": "Serving engine (`dynosim list backends`).",
    "backend_version": "Version of the engine; the newest known one if not given.",
    "tensor_parallel_size": "GPUs that share every layer.",
    "pipeline_parallel_size": "Stages that the layers are cut into.",
    "enable_expert_parallel": "Give each GPU whole experts rather than slices of all.",
    "quantization": "Weight format, where it is not the checkpoint's own.",
    "kv_cache_dtype": "Element type of the KV cache.",
    "max_model_len": "Longest prompt plus answer, in tokens; the model's own if not given.",
    "max_num_seqs": "Sequences that run at once in one engine.",
    "max_num_batched_tokens": "Token budget of one engine step.",
    "gpu_memory_utilization": "Share of the GPU's memory that the engine may take.",
    "block_size": "Tokens in one KV-cache block.",
    "enable_prefix_caching": "Reuse KV cache of common prompt beginnings.",
    "enable_chunked_prefill": "Split long prompts over several steps.",
    "num_gpu_blocks_override": "KV-cache blocks, instead of what memory leaves.",
    "kv_cache_memory_bytes": "Bytes of KV cache per GPU, instead of what memory leaves.",
    "replicas": "Engines behind the router.",
    "router": "How a request finds its engine.",
}
