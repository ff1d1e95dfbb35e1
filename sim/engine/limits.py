"""The scheduling limits of one replica, by vLLM's own option names."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.sim.engine.drafting import Drafting


@dataclass(frozen=True, kw_only=True)
class EngineLimits:
    """Scheduling limits of one replica; ``max_run`` = 1 steps instead of leaping.

    ``scheduler`` names a module of :mod:`dynosim.sim.engine.schedulers`, ``scheduling_policy`` one
    of its policies.

    ``long_prefill_token_threshold`` bounds a prompt's tokens in one step, 0 for no bound.
    ``watermark`` is the fraction of KV blocks that entering requests leave free.
    ``scheduler_reserve_full_isl`` lets a request in only when blocks for all of its prompt are
    free, instead of those for its first chunk.

    ``enable_mixed_chunk`` and ``schedule_conservativeness`` are SGLang's: decodes take part in
    prefill batches; and how much of the tokens that may still be generated entering requests
    leave room for.

    ``scheduler_recv_interval`` is SGLang's too: decode steps between two looks at who has arrived.

    ``batch_wait_timeout_iters`` and ``batch_wait_max_tokens_ratio`` are TensorRT-LLM's: beside
    decodes, prompts wait so many steps for each other, or until their tokens and the decodes make
    up this share of the budget. Where ``attention_dp_enable_balance``, prompts of data-parallel
    ranks wait for each other, for ``attention_dp_timeout_iters`` steps, and when every rank has
    one for ``attention_dp_batching_wait_iters`` more.

    ``async_scheduling`` forms every batch while the one before it runs, unless the engine drafts.

    ``drafting`` is how the engine speculates, None where every step gives a sequence one token.

    Without ``leaps_chunks`` steps with a prompt go one by one even where ``max_run`` leaps.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int = 16
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    scheduler: str = "vllm"
    scheduling_policy: str = "fcfs"
    long_prefill_token_threshold: int = 0
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool = True
    enable_mixed_chunk: bool = False
    schedule_conservativeness: float = 1.0
    scheduler_recv_interval: int = 1
    batch_wait_timeout_iters: int = 0
    batch_wait_max_tokens_ratio: float = 0.0
    attention_dp_enable_balance: bool = False
    attention_dp_timeout_iters: int = 50
    attention_dp_batching_wait_iters: int = 10
    async_scheduling: bool = False
    drafting: Drafting | None = None
    max_run: int = 1 << 40
    leaps_chunks: bool = True

    @property
    def query_tokens(self) -> int:
        """Tokens that a decoding sequence takes of a step's budget."""
        return self.drafting.query_tokens if self.drafting else 1
