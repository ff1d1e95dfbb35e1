"""From a workload to the requests that are sent."""

from __future__ import annotations

import numpy as np

from dynosim.hardware_models.arrays import IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.prefix_chains import offsets_of
from dynosim.sim.workload.summary import ideal_prefix_hits
from dynosim.sim.workload.turns import Turns
from dynosim.verification.load.prompts import make_prompts
from dynosim.verification.load.token_ids import TokenIds
from dynosim.verification.load_plan import LoadPlan

WARM_UP = 4
"""Requests that compile, capture and open connections before anything is measured."""
_WARM_UP_TOKENS = 16


def plan_load(load: Workload, ids: TokenIds, *, warmup: int = WARM_UP) -> LoadPlan:
    """Returns the plan that sends a workload token by token.

    Warm-up requests have its median prompt length, short answers and prompts of their own. An
    answer is not known before it is given: where a later turn repeats it, made-up tokens stand for
    it, which an engine has to compute as it does in a simulation. ``ids`` with another seed give
    prompts that an engine has not seen yet. Raises UserError for clients that give up or repeat,
    and for turns behind a cap of requests in flight.
    """
    _check(load)
    prompt_tokens = [int(np.median(load.input_tokens))] * warmup
    answer_tokens = min(_WARM_UP_TOKENS, int(np.median(load.output_tokens)))
    is_paced = load.max_concurrency is None or bool(load.arrival_s.any())
    return LoadPlan(
        prompts=tuple(make_prompts(load, ids, prompt_tokens)),
        output_tokens=(*[answer_tokens] * warmup, *load.output_tokens.tolist()),
        send_s=(*[0.0] * warmup, *load.arrival_s.tolist()) if is_paced else None,
        max_concurrency=load.max_concurrency,
        warmup=warmup,
        priority=_priority(load.priority, warmup),
        turns=_behind(load.turns, warmup),
        shared_tokens=ideal_prefix_hits(load) * load.prefix_block_tokens,
    )


def _check(load: Workload) -> None:
    if load.client.gives_up:
        raise UserError(
            "clients that give up or repeat would measure themselves",
            where="workload: client_timeout_s, client_retries",
            hint="leave them out; a verification has a time limit of its own",
        )
    if load.turns is not None and load.max_concurrency is not None:
        raise UserError(
            "turns cannot wait for each other and for a slot",
            where="workload: max_concurrency",
            hint="leave it out: conversations pace themselves",
        )


def _priority(priority: IntArray | None, warmup: int) -> tuple[int, ...] | None:
    return None if priority is None else (*[0] * warmup, *priority.tolist())


def _behind(turns: Turns | None, warmup: int) -> Turns | None:
    """Returns turns with ``warmup`` requests before them, which wait for none."""
    if turns is None:
        return None
    counts = np.concatenate((np.zeros(warmup, dtype=np.int64), np.diff(turns.offsets)))
    return Turns(
        before=turns.before + warmup,
        offsets=offsets_of(counts),
        think_s=np.concatenate((np.zeros(warmup), turns.think_s)),
    )
