"""From a resolved engine to what its scheduler may do."""

from __future__ import annotations

from dynosim.hardware_models.data_parallel import data_parallel_rules
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.hardware_models.registry import find_module, own_names
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.sim.engine.drafting import Drafting
from dynosim.sim.engine.engine import EngineLimits

_SCHEDULERS = "dynosim.sim.engine.schedulers"
_OPTIONS = {
    "sglang": ("enable_mixed_chunk", "schedule_conservativeness", "scheduler_recv_interval"),
    "trtllm": (
        *("batch_wait_timeout_iters", "batch_wait_max_tokens_ratio"),
        *("attention_dp_enable_balance", "attention_dp_timeout_iters"),
        *("attention_dp_batching_wait_iters", "moe_backend"),
    ),
}
"""Options that only one engine has."""


def engine_limits(engine: ResolvedEngine, *, leap: bool, lockstep: bool = False) -> EngineLimits:
    """Returns the scheduling limits of a resolved engine; UserError for options that it lacks.

    ``lockstep`` says that data-parallel ranks step together.
    """
    args = engine.args
    assert args.max_num_seqs is not None, "unresolved engine"
    assert args.max_num_batched_tokens is not None, "unresolved engine"
    scheduler = scheduler_name(engine.backend.name)
    _check_options(scheduler, args)
    factor = data_parallel_rules(engine.backend.name).conservativeness_factor if lockstep else 1.0
    return EngineLimits(
        scheduler=scheduler,
        scheduling_policy=_policy(scheduler, args.scheduling_policy),
        long_prefill_token_threshold=args.long_prefill_token_threshold,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        block_size=engine.block_size,
        enable_prefix_caching=bool(args.enable_prefix_caching),
        enable_chunked_prefill=bool(args.enable_chunked_prefill),
        enable_mixed_chunk=args.enable_mixed_chunk,
        schedule_conservativeness=args.schedule_conservativeness * factor,
        scheduler_recv_interval=args.scheduler_recv_interval,
        batch_wait_timeout_iters=args.batch_wait_timeout_iters,
        batch_wait_max_tokens_ratio=args.batch_wait_max_tokens_ratio,
        attention_dp_enable_balance=args.attention_dp_enable_balance,
        attention_dp_timeout_iters=args.attention_dp_timeout_iters,
        attention_dp_batching_wait_iters=args.attention_dp_batching_wait_iters,
        # Neither lock step nor drafts are modelled ahead of the step in progress.
        async_scheduling=engine.backend.asynchronous_scheduling
        and not lockstep
        and engine.speculation is None,
        drafting=_drafting(engine),
        max_run=1 << 40 if leap else 1,
    )


def scheduler_name(backend: str) -> str:
    """Returns whose scheduler forms the batches of ``backend``: vLLM's where it has none here."""
    return backend if backend in own_names(_SCHEDULERS) else "vllm"


def _drafting(engine: ResolvedEngine) -> Drafting | None:
    """Returns how the engine speculates, None where it does not."""
    speculation = engine.speculation
    if speculation is None:
        return None
    assert engine.args.max_model_len is not None, "unresolved engine"
    return Drafting(
        num_tokens=speculation.num_tokens,
        acceptance=speculation.acceptance,
        lookahead_tokens=speculation.lookahead_tokens,
        max_model_len=engine.args.max_model_len,
    )


def _check_options(scheduler: str, args: EngineArgs) -> None:
    """Raises UserError where an option is set that the scheduler does not have."""
    if args.stream_interval > 1 and args.speculative_method is not None:
        raise UserError(
            "streams of engines that speculate are written at every step here",
            where="stream_interval",
            hint="allowed: 1; or leave out speculative_method",
        )
    for owner, names in _OPTIONS.items():
        for name in names if scheduler != owner else ():
            if getattr(args, name) != getattr(EngineArgs, name):
                hint = f"it is {owner}'s"
                raise UserError(f"{args.backend} has no such option", where=name, hint=hint)
    if args.scheduler_recv_interval > 1 and args.data_parallel_size > 1:
        raise UserError(
            "sglang's ranks with data-parallel attention receive requests in every step",
            where="scheduler_recv_interval",
            hint="allowed: 1",
        )


def _policy(scheduler: str, asked: str | None) -> str:
    policies: tuple[str, ...] = find_module(_SCHEDULERS, "scheduler", scheduler).POLICIES
    policy = policies[0] if asked is None else asked.lower().replace("-", "_")
    if policy not in policies:
        raise unknown_name("scheduling policy", policy, policies, where="scheduling_policy")
    return policy
