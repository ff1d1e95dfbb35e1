"""Gauges and counters of every engine over time, under the names that vLLM's /metrics has.

The names are those of vLLM 0.11 to 0.32 (``vllm/v1/metrics/loggers.py``), counters with the
``_total`` that Prometheus' exposition adds; other engines' are reported under the same ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dynosim.hardware_models.arrays import FloatArray, IntArray
from dynosim.hardware_models.errors import UserError
from dynosim.sim.result_files import write_atomically
from dynosim.sim.results import ReplicaLog, RunResult
from dynosim.sim.timeline.preemptions import preemptions

GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
COUNTERS = (
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:request_success_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:num_preemptions_total",
)
NAMES = (*GAUGES, *COUNTERS)
MOST_ROWS = 5_000_000


@dataclass(frozen=True, kw_only=True)
class Series:
    """Values at ``time_s`` (seconds from the start of the run) by engine and name.

    ``prefill_engines`` are those of a pool that only computes prompts.
    """

    time_s: FloatArray
    engines: tuple[dict[str, FloatArray], ...]
    prefill_engines: tuple[dict[str, FloatArray], ...] = ()


def series(result: RunResult, interval_s: float) -> Series:
    """Returns every engine's values each ``interval_s``, from the first request to the last token.

    KV use is that at the end of the run of steps in progress. Preempted requests count as waiting;
    a preemption counts when the request has had a token. In a pool that computes prompts for
    another, who waits is noted as batches are formed, and a request is done with its prompt.
    UserError for an interval that is not positive or makes more than :data:`MOST_ROWS` rows.
    """
    if not 0.0 < interval_s < np.inf:
        raise UserError(f"found {interval_s:g}", where="--series-interval-s", hint="allowed: > 0")
    end_s = float(np.nanmax(result.finish_s, initial=0.0))
    rows = int(np.ceil(end_s / interval_s)) + 1
    hand_overs = result.hand_overs
    prefill = () if hand_overs is None else hand_overs.replicas
    num_engines = len(result.replicas) + len(prefill)
    if rows * num_engines > MOST_ROWS:
        raise UserError(
            f"{interval_s:g} s makes {rows * num_engines:,} rows",
            where="--series-interval-s",
            hint=f"allowed: up to {MOST_ROWS:,}",
        )
    time_s = np.arange(rows, dtype=np.float64) * float(interval_s)
    engines = tuple(_engine(result, number, time_s) for number in range(len(result.replicas)))
    theirs = tuple(_prefill_engine(result, log, time_s) for log in prefill)
    return Series(time_s=time_s, engines=engines, prefill_engines=theirs)


def write_series(path: Path, found: Series) -> None:
    """Writes a row for every time and engine as CSV, or columns as JSON where the name says so."""
    if path.suffix == ".json":
        pools = {"engines": found.engines}
        if found.prefill_engines:
            pools["prefill_engines"] = found.prefill_engines
        document: dict[str, object] = {"time_s": found.time_s.tolist()}
        for name, engines in pools.items():
            document[name] = [{k: v.tolist() for k, v in one.items()} for one in engines]
        write_atomically(path, json.dumps(document, allow_nan=False) + "\n")
        return
    lines = [",".join(("time_s", "engine", *NAMES))]
    named = [(f"{number}", one) for number, one in enumerate(found.engines)]
    named += [(f"prefill {number}", one) for number, one in enumerate(found.prefill_engines)]
    columns = [(name, np.stack([one[n] for n in NAMES]).T.tolist()) for name, one in named]
    for row, time_s in enumerate(found.time_s.tolist()):
        for engine, values in columns:
            cells = (f"{value:.6g}" if value % 1 else f"{value:.0f}" for value in values[row])
            lines.append(f"{time_s:.6f},{engine},{','.join(cells)}")
    write_atomically(path, "\n".join(lines) + "\n")


def _engine(result: RunResult, replica: int, time_s: FloatArray) -> dict[str, FloatArray]:
    log = result.replicas[replica]
    own = result.completed & (result.replica == replica)
    work = result.workload
    values = dict(zip(GAUGES, _gauges(log, result.routed_s[own], time_s), strict=True))
    counters = (
        _summed(result.first_token_s[own], work.input_tokens[own], time_s),
        _generated(log, time_s),
        _summed(result.finish_s[own], np.ones(int(own.sum())), time_s),
        _summed(result.scheduled_s[own], work.input_tokens[own], time_s),
        _summed(result.scheduled_s[own], result.cached_tokens[own], time_s),
        _preempted(log, time_s),
    )
    return values | dict(zip(COUNTERS, counters, strict=True))


def _prefill_engine(
    result: RunResult, log: ReplicaLog, time_s: FloatArray
) -> dict[str, FloatArray]:
    """Returns the values of an engine that is done with a request when its prompt is complete."""
    request, first, _ = log.stints.T
    prompt_s, prompt_tokens = log.steps.ends_s(first), result.workload.input_tokens[request]
    scheduled_s = result.scheduled_s[request]
    values = dict(zip(GAUGES, _gauges(log, np.empty(0), time_s), strict=True))
    counters = (
        _summed(prompt_s, prompt_tokens, time_s),
        _generated(log, time_s),
        _summed(prompt_s, np.ones(len(request)), time_s),
        _summed(scheduled_s, prompt_tokens, time_s),
        _summed(scheduled_s, result.cached_tokens[request], time_s),
        _preempted(log, time_s),
    )
    return values | dict(zip(COUNTERS, counters, strict=True))


def _gauges(
    log: ReplicaLog, routed_s: FloatArray, time_s: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns requests running and waiting, and the share of KV blocks in use.

    ``routed_s`` is when each came that was to wait before it ran.
    """
    steps = log.steps
    if not len(steps.counts):
        nothing = np.zeros(len(time_s))
        return nothing, nothing, nothing
    run = np.searchsorted(steps.start_s, time_s, side="right") - 1
    inside = (run >= 0) & (time_s < (steps.start_s + steps.durations_s)[run])
    arrived_s = np.sort(routed_s)
    # Nobody enters while a run lasts: who waits is who could not when it began, and who came since.
    since = np.searchsorted(arrived_s, time_s, side="right")
    since = since - np.searchsorted(arrived_s, steps.start_s[run], side="right")
    return (
        np.where(inside, steps.running[run], 0.0),
        np.where(inside, steps.blocked[run] + since, 0.0),
        np.where(inside, steps.used_blocks[run] / log.num_blocks, 0.0),
    )


def _generated(log: ReplicaLog, time_s: FloatArray) -> FloatArray:
    """Returns tokens generated up to each time; accepted drafts are spread evenly over steps."""
    steps = log.steps
    if not len(steps.counts):
        return np.zeros(len(time_s))
    starts = np.concatenate([[0.0], np.cumsum(steps.outputs * steps.counts)])
    run = np.maximum(np.searchsorted(steps.start_s, time_s, side="right") - 1, 0)
    done = _steps_done(steps.dt_s[run], steps.growth_s[run], time_s - steps.start_s[run])
    done = np.clip(done, 0.0, steps.counts[run])
    tokens = starts[run] + done * steps.outputs[run]
    verified, drafts = log.verifications[:, 1].sum(), log.verifications[:, 2].sum()
    total = starts[-1] + float(verified - drafts)
    return np.asarray(tokens * (total / starts[-1]) if starts[-1] else tokens)


def _steps_done(dt_s: FloatArray, growth_s: FloatArray, elapsed_s: FloatArray) -> FloatArray:
    """Returns how many steps of runs have ended after some time."""
    # n dt + n (n - 1) growth / 2 = elapsed, for the largest whole n.
    linear = dt_s - 0.5 * growth_s
    root = np.sqrt(np.maximum(linear * linear + 2.0 * growth_s * elapsed_s, 0.0))
    return np.asarray(np.floor(2.0 * elapsed_s / (linear + root) + 1e-9))


def _preempted(log: ReplicaLog, time_s: FloatArray) -> FloatArray:
    """Returns how often requests that had tokens lost their blocks, up to each time."""
    lost_s = preemptions(log)[1]
    return _summed(lost_s, np.ones(len(lost_s)), time_s)


def _summed(event_s: FloatArray, amount: FloatArray | IntArray, time_s: FloatArray) -> FloatArray:
    """Returns the sum of what came up to and including each time."""
    order = np.argsort(event_s, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(amount[order])])
    return np.asarray(sums[np.searchsorted(event_s[order], time_s, side="right")])
