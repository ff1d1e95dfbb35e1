"""Synthetic conversations: every turn's prompt is all that was said before it, and more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.sim.workload.columns import Workload
from dynosim.sim.workload.prefix_chains import depths, offsets_of
from dynosim.sim.workload.turns import Turns


def as_sessions(
    load: Workload,
    num_turns: int,
    think_s: float,
    block_tokens: int,
    session_arrival_s: FloatArray,
) -> Workload:
    """Returns the requests as turns of sessions, ``num_turns`` each but for a shorter last one.

    A turn's prompt is that of the turn before it, its answer, and the request's own tokens but for
    the shared prefix, which a session has once. Turn k of session s is request s x num_turns + k.
    """
    n = len(load)
    number = np.arange(n)
    session, turn = number // num_turns, number % num_turns
    shared = np.diff(load.prefix_offsets)
    own = load.input_tokens - _shared_tokens(load)
    said = np.concatenate(([0], np.cumsum(own + load.output_tokens)))
    # All of a session's earlier turns, and this one's own tokens.
    prompts = (
        _shared_tokens(load)[session * num_turns] + said[:-1] - said[session * num_turns] + own
    )
    ids, offsets = _ids(load, session * num_turns, prompts // block_tokens, shared)
    previous = np.where(turn > 0, number - 1, -1)
    return replace(
        load,
        arrival_s=session_arrival_s[session],
        input_tokens=prompts,
        prefix_ids=ids,
        prefix_offsets=offsets,
        prefix_block_tokens=block_tokens,
        session=session,
        turns=Turns.chained(previous, np.where(turn > 0, think_s, 0.0)),
    ).check()


def _shared_tokens(load: Workload) -> IntArray:
    return np.asarray(np.diff(load.prefix_offsets) * max(load.prefix_block_tokens, 1))


def _ids(
    load: Workload, first: IntArray, counts: IntArray, shared: IntArray
) -> tuple[IntArray, IntArray]:
    """Returns ids of all full blocks of prompts: the first turn's shared ones, then the session's.

    Those are its own: one number each, in order.
    """
    offsets = offsets_of(counts)
    depth = depths(offsets)
    owner = np.repeat(first, counts)
    base = int(load.prefix_ids.max(initial=-1)) + 1
    width = int(counts.max(initial=0))
    ids = base + owner * width + depth
    is_shared = depth < np.repeat(shared[first], counts)
    ids[is_shared] = load.prefix_ids[(load.prefix_offsets[owner] + depth)[is_shared]]
    return ids, offsets
