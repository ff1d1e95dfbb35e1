"""Estimated metrics of many candidates at once."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.llm.quality import quality_of
from dynosim.hardware_models.memory.plan import MemoryPlan
from dynosim.hardware_models.power import mean_watts
from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.search.canonical import one_replica
from dynosim.search.engines import planned
from dynosim.search.estimate.engine_curve import EngineCurve, decode_curve, engine_curve
from dynosim.search.estimate.load import Load, summarize_load
from dynosim.search.estimate.steady_state import SteadyState, steady_state
from dynosim.search.estimate.two_pools import PoolCurve, two_pools
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import scheduler_name, transfer_between
from dynosim.sim.workload.columns import Workload

MOST_DECODES = 4096
"""Decodes in flight up to which curves are drawn; more slots than that change no estimate."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """Metrics by name, shape (candidates,); NaN where there is none. ``use`` as in SteadyState."""

    metrics: Mapping[str, FloatArray]
    use: FloatArray


def estimate(deployments: Sequence[Deployment], workload: Workload) -> Estimates:
    """Returns estimated metrics of ``deployments``, which all can run."""
    return Estimator(workload).of(deployments)


class Estimator:
    """Estimates under one workload; step timers and curves are kept from call to call."""

    def __init__(self, workload: Workload) -> None:
        self._engines = _Engines(workload, summarize_load(workload))

    def of(self, deployments: Sequence[Deployment]) -> Estimates:
        """Returns estimated metrics of ``deployments``, which all can run."""
        groups: dict[Deployment, list[int]] = defaultdict(list)
        pools = []
        for i, deployment in enumerate(deployments):
            if deployment.prefill_replicas:
                pools.append([i])
            else:
                groups[_same_timer(deployment)].append(i)
        metrics: dict[str, FloatArray] = {}
        use = np.full(len(deployments), np.nan)
        for members in (*groups.values(), *pools):
            own = [deployments[i] for i in members]
            try:
                values, own_use = self._estimated(own)
            except UserError:
                continue  # Nothing prices its steps; simulating it will say so.
            use[members] = own_use
            for name, column in values.items():
                full = metrics.setdefault(name, np.full(len(deployments), np.nan))
                full[members] = column
        return Estimates(metrics, use)

    def _estimated(self, own: Sequence[Deployment]) -> tuple[dict[str, FloatArray], FloatArray]:
        pool = own[0].prefill_pool
        if pool is None:
            return _group(own, self._engines)
        state, values = _pools(own[0], pool, self._engines)
        return values, state.use


MOST_TIMERS = 128
"""Step timers kept: some 200 KiB each."""


class _Engines:
    """The timers and curves of engines, each worked out once."""

    def __init__(self, workload: Workload, load: Load) -> None:
        self.workload = workload
        self.load = load
        self._timers: OrderedDict[Deployment, tuple[tuple[int, int], StepTimer]] = OrderedDict()
        self._decodes: OrderedDict[tuple[Deployment, int], FloatArray] = OrderedDict()
        self._curves: OrderedDict[tuple[Deployment, int, int], EngineCurve] = OrderedDict()

    def timer(self, key: Deployment, engine: ResolvedEngine) -> StepTimer:
        """Returns the timer of engines that differ from ``engine`` in smaller batch limits only.

        ``key`` is what they have in common (:func:`_same_timer`).
        """
        widest = (engine.args.max_num_seqs or 1, engine.args.max_num_batched_tokens or 1)
        found = self._timers.get(key)
        if found is None or found[0][0] < widest[0] or found[0][1] < widest[1]:
            if found is not None:
                widest = (max(widest[0], found[0][0]), max(widest[1], found[0][1]))
                args = replace(
                    engine.args, max_num_seqs=widest[0], max_num_batched_tokens=widest[1]
                )
                engine = replace(engine, args=args)
            found = widest, StepTimer.compile(engine)
        _keep(self._timers, key, found)
        return found[1]

    def curve(
        self, key: Deployment, engine: ResolvedEngine, timer: StepTimer, most: int, budget: int
    ) -> EngineCurve:
        """Returns the curve of engines with ``budget``, up to ``most`` decodes, each by token."""
        place = (key, most, budget)
        found = self._curves.get(place)
        if found is None:
            queries, length = _verification(engine)
            decode_s = self._decodes.get((key, most))
            if decode_s is None:
                decode_s = decode_curve(timer, self.load, most)
            _keep(self._decodes, (key, most), decode_s)
            found = engine_curve(
                timer,
                self.load,
                decode_s,
                budget=budget,
                mixes=_mixes(engine),
                query_tokens=queries,
            )
            # Little's law counts tokens.
            found = replace(found, decode_s=found.decode_s / length)
        _keep(self._curves, place, found)
        return found

    def of_pool(self, pool: Deployment) -> tuple[ResolvedEngine, PoolCurve]:
        """Returns the engine of a pool and its curve."""
        engine, plan = planned(one_replica(pool), self.workload)
        slots, budget = _slots(engine, plan, self.load), engine.args.max_num_batched_tokens or 1
        key = _same_timer(pool)
        timer = self.timer(key, engine)
        curve = self.curve(key, engine, timer, int(min(slots, MOST_DECODES)), budget)
        ranks = pool.replicas * pool.data_parallel_size
        return engine, PoolCurve(curve=curve, slots=slots, replicas=ranks)


def _keep(memory: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    """Notes what was used last, and forgets what was not used for longest."""
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > MOST_TIMERS:
        memory.popitem(last=False)


def _pools(
    deployment: Deployment, pool: Deployment, engines: _Engines
) -> tuple[SteadyState, dict[str, FloatArray]]:
    """Returns the state of two pools, and its metrics; UserError where they cannot run."""
    engine, decode = engines.of_pool(deployment.decode_pool)
    prefill_engine, prefill = engines.of_pool(pool)
    transfer = transfer_between(deployment, prefill_engine, engine)
    load = engines.load
    tokens = round(float(np.mean(load.prompt_classes)) + load.hit_tokens)
    port = min(transfer.egress_bytes_s, transfer.ingress_bytes_s)
    transfer_s = transfer.latency_s + (transfer.size.of(tokens) + transfer.size.state) / port
    state = two_pools(prefill, decode, load, transfer_s)
    num_gpus = np.array([deployment.num_gpus], dtype=np.float64)
    metrics = _metrics(state, load, engine, np.ones(1), num_gpus)
    ours, theirs = engine.gpu.cloud_price_usd_hour, prefill_engine.gpu.cloud_price_usd_hour
    if ours is not None and theirs is not None and ours != theirs:
        own = deployment.num_prefill_gpus
        factor = (own * theirs + (num_gpus - own) * ours) / (num_gpus * ours)
        metrics["usd_per_hour"] *= factor
        metrics["usd_per_million_output_tokens"] *= factor
    return state, metrics


def _same_timer(deployment: Deployment) -> Deployment:
    """Returns what deployments have in common whose steps take equally long."""
    timer = one_replica(deployment)
    vars(timer).update(_UNTIMED)  # Nobody else has it yet.
    return timer


_UNTIMED = {
    name: getattr(Deployment, name)
    for name in (
        "max_num_seqs",
        "max_num_batched_tokens",
        "gpu_memory_utilization",
        "enable_prefix_caching",
        "scheduling_policy",
    )
}
"""Fields that decide which batches there are, not how long one of them takes."""


def _group(
    deployments: Sequence[Deployment], engines: _Engines
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Returns the metrics of candidates whose engines differ in nothing but their batch limits."""
    load = engines.load
    alone = [one_replica(d) for d in deployments]
    plans = {engine: planned(engine, engines.workload) for engine in dict.fromkeys(alone)}
    pairs = [plans[engine] for engine in alone]
    slots = np.array([_slots(engine, plan, load) for engine, plan in pairs], dtype=np.float64)
    budgets = np.array([engine.args.max_num_batched_tokens for engine, _ in pairs])
    # Every data-parallel rank has a queue and a cache of its own.
    ranks = [d.replicas * d.data_parallel_size for d in deployments]
    replicas = np.array(ranks, dtype=np.float64)
    num_gpus = np.array([d.num_gpus for d in deployments], dtype=np.float64)
    engine = _widest([engine for engine, _ in pairs])
    key = _same_timer(deployments[0])
    timer = engines.timer(key, engine)
    slots = np.minimum(slots, np.maximum(budgets // _verification(engine)[0], 1))
    most = min(int(slots.max()), MOST_DECODES)
    metrics: dict[str, FloatArray] = {}
    use = np.empty(len(deployments))
    for budget in np.unique(budgets):
        own = budgets == budget
        curve = engines.curve(key, engine, timer, most, int(budget))
        state = steady_state(curve, load, slots=slots[own], replicas=replicas[own])
        use[own] = state.use
        for name, values in _metrics(state, load, engine, replicas[own], num_gpus[own]).items():
            metrics.setdefault(name, np.empty(len(deployments)))[own] = values
    return metrics, use


def _verification(engine: ResolvedEngine) -> tuple[int, float]:
    """Returns the tokens that a decode computes in a step, and those that it gets."""
    speculation = engine.speculation
    return (speculation.query_tokens, speculation.mean_acceptance_length) if speculation else (1, 1)


def _widest(engines: Sequence[ResolvedEngine]) -> ResolvedEngine:
    """Returns the engine with the largest batch limits of all, whose timer serves every one."""
    seqs = max(e.args.max_num_seqs or 1 for e in engines)
    budget = max(e.args.max_num_batched_tokens or 1 for e in engines)
    args = replace(engines[0].args, max_num_seqs=seqs, max_num_batched_tokens=budget)
    return replace(engines[0], args=args)


def _mixes(engine: ResolvedEngine) -> bool:
    """Whether decodes take part in the steps of prefill chunks."""
    scheduler = scheduler_name(engine.backend.name)
    return scheduler != "static" and (scheduler != "sglang" or engine.args.enable_mixed_chunk)


def _slots(engine: ResolvedEngine, plan: MemoryPlan, load: Load) -> float:
    """Returns the sequences that an engine can hold, by its own limit and by its KV cache."""
    assert engine.args.max_num_seqs is not None, "unresolved engine"
    by_memory = plan.kv_cache_tokens / load.held_tokens
    return max(1.0, min(float(engine.args.max_num_seqs), by_memory))


def _metrics(
    state: SteadyState,
    load: Load,
    engine: ResolvedEngine,
    replicas: FloatArray,
    num_gpus: FloatArray,
) -> dict[str, FloatArray]:
    frontend_s = engine.backend.frontend_s
    rate = state.rate_req_s * replicas
    output_tok_s = rate * load.output_tokens
    prompt = float(np.mean(load.prompt_classes)) + load.hit_tokens
    mean_ttft_s = frontend_s + state.mean_wait_s + state.mean_prefill_s
    p99_ttft_s = frontend_s + state.p99_wait_s + state.p99_prefill_s
    gaps = max(load.output_tokens - 1.0, 0.0)
    usd_hour = engine.gpu.cloud_price_usd_hour
    price = np.nan if usd_hour is None else usd_hour
    # Mean requests in an engine; as if their number were Poisson it is idle where there is none.
    present = state.rate_req_s * (mean_ttft_s + gaps * state.tpot_s)
    watts = mean_watts(engine.gpu, num_gpus, -np.expm1(-present))
    latencies_s = {
        "ttft": (mean_ttft_s, p99_ttft_s),
        "queue": (state.mean_wait_s, state.p99_wait_s),
        "prefill": (state.mean_prefill_s, state.p99_prefill_s),
        "tpot": (state.tpot_s, state.tpot_s),
        "itl": (state.tpot_s, state.p99_gap_s),
        "e2el": (mean_ttft_s + gaps * state.tpot_s, p99_ttft_s + 2.0 * gaps * state.tpot_s),
    }
    return {
        "output_throughput": output_tok_s,
        "request_throughput": rate,
        "total_token_throughput": rate * (load.output_tokens + prompt),
        "output_tok_s_per_gpu": output_tok_s / num_gpus,
        "total_tok_s_per_gpu": rate * (load.output_tokens + prompt) / num_gpus,
        "output_tok_s_per_user": 1.0 / state.tpot_s,
        "usd_per_hour": price * num_gpus,
        "usd_per_million_output_tokens": price * num_gpus / (output_tok_s * 3600.0) * 1e6,
        "mean_watts": watts,
        "joules_per_output_token": watts / output_tok_s,
        "num_gpus": num_gpus,
        "quality": np.full(len(num_gpus), quality_of(engine.model)),
        "duration": load.num_requests / rate,
        **_percentiles(latencies_s),
    }


def _percentiles(
    latencies_s: Mapping[str, tuple[FloatArray, FloatArray]],
) -> dict[str, FloatArray]:
    """Returns ms at every reported statistic, between mean and p99 along an exponential tail."""
    weights = {"mean": 0.0, "median": 0.0, "p50": 0.0, "p90": 0.5, "p95": 0.65, "p99": 1.0}
    return {
        f"{statistic}_{kind}_ms": 1e3 * (mean + weight * (tail - mean))
        for kind, (mean, tail) in latencies_s.items()
        for statistic, weight in weights.items()
    }
