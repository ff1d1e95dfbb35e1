"""Capacity: the largest load under which a latency percentile keeps its limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from dynosim.accuracy.intervals import ErrorModel, Interval
from dynosim.hardware_models.resolve import resolve_engine
from dynosim.planning.bottleneck import bottleneck
from dynosim.planning.boundary import Boundary, find_boundary
from dynosim.planning.load import Kind, Load, check_fixed
from dynosim.planning.observation import Observation, observe
from dynosim.planning.room import Room, room_of
from dynosim.planning.users import DEFAULT_THINK_S, Users, users_of
from dynosim.search.slo import Slo
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SEEDS = 3
CONFIDENCE = 0.95
BEYOND = 4
"""A closed loop of so many times the sequences that engines run at once only queues more."""
RATE_CAP = 2.0**20

Look = Callable[[Load, int], Observation]
"""Observes a load with a seed; the same question is simulated once."""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The answer, and what it rests on.

    ``per_seed`` are the largest loads of every seed, ``value`` their mean and ``low`` to ``high``
    its 95 % interval (Student's t; NaN for one seed). ``expected`` are the capacities if latencies
    lay at the slow and the fast end of the interval that holds four of five measurements, None
    where nothing like it was measured. ``sweep`` are the first seed's observations in rising order
    of load. ``at`` is the largest that keeps the limits (None: none does), ``beyond`` the first
    that does not. ``is_open`` says that no load up to the cap fails.
    """

    kind: Kind
    slos: tuple[Slo, ...]
    per_seed: tuple[float, ...]
    value: float
    low: float
    high: float
    expected: tuple[float, float] | None
    sweep: tuple[Observation, ...]
    at: Observation | None
    beyond: Observation | None
    room: Room
    users: Users | None
    narrowest: str
    is_open: bool
    notes: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """Returns the sweep, a load a row: requests ``ok`` of ``total``, latencies in ms."""
        import pandas as pd

        rows = [
            {"load": seen.load.size, "ok": seen.ok, "total": seen.total}
            | {"request_throughput": seen.request_throughput, "is_stable": seen.is_stable}
            | dict(seen.latencies_ms)
            for seen in self.sweep
        ]
        return pd.DataFrame(rows)

    def plot(self, title: str = "") -> Figure:
        """Returns the figure of latencies and throughput over the load."""
        from dynosim.planning.capacity_figure import capacity_figure

        return capacity_figure(self, title)


def find_capacity(
    deployment: Deployment,
    spec: WorkloadSpec,
    slos: Sequence[Slo],
    *,
    kind: Kind = "concurrency",
    seeds: int = SEEDS,
    think_s: float = DEFAULT_THINK_S,
    errors: ErrorModel | None = None,
) -> Capacity:
    """Returns the capacity of ``deployment`` for requests like those of ``spec``.

    Every seed's loads draw the same requests, so that the boundary is sharp; seeds differ only
    where the workload is random. Raises UserError where the deployment cannot run, or where the
    workload fixes its own load.
    """
    check_fixed(spec)

    @cache
    def look(load: Load, seed: int) -> Observation:
        return observe(deployment, spec, load, slos, seed, errors)

    cap = load_cap(deployment, kind)
    first = boundary_of(look, slos, kind, spec.seed, start=1.0, cap=cap)
    others = [
        boundary_of(look, slos, kind, seed, start=max(first.holds, 1e-3), cap=cap).holds
        for seed in range(spec.seed + 1, spec.seed + seeds)
    ]
    per_seed = (first.holds, *others)
    at = look(Load(kind=kind, size=first.holds), spec.seed) if first.holds else None
    is_open = math.isinf(first.fails)
    beyond = None if is_open else look(Load(kind=kind, size=first.fails), spec.seed)
    shown = _complete_sweep(look, kind, spec.seed, first, cap)
    any_seen = at or beyond
    assert any_seen is not None, "a boundary has a side"
    return Capacity(
        kind=kind,
        slos=tuple(slos),
        per_seed=per_seed,
        **_interval(per_seed),
        expected=expected_range(look, slos, kind, spec.seed, at, cap),
        sweep=tuple(shown),
        at=at,
        beyond=beyond,
        room=room_of(any_seen.simulation),
        users=None if at is None else users_of(at.load, at.mean_e2el_s, think_s),
        narrowest="nothing found" if beyond is None else bottleneck(beyond, slos),
        is_open=is_open,
        notes=tuple(_notes(shown, slos, first, per_seed)),
    )


def load_cap(deployment: Deployment, kind: Kind) -> float:
    """Returns the load beyond which a larger one only queues more."""
    if kind == "rate":
        return RATE_CAP
    engine = resolve_engine(deployment)
    assert engine.args.max_num_seqs is not None, "unresolved engine"
    engines = deployment.replicas * engine.args.data_parallel_size
    return float(BEYOND * engine.args.max_num_seqs * engines)


def boundary_of(
    look: Look, slos: Sequence[Slo], kind: Kind, seed: int, *, start: float, cap: float
) -> Boundary:
    """Returns where a seed's loads begin to break a limit."""
    return find_boundary(
        lambda load: look(load, seed).excess(slos) <= 0, kind, start=start, cap=cap
    )


def _interval(per_seed: Sequence[float]) -> dict[str, float]:
    values = np.array(per_seed)
    mean = float(values.mean())
    if len(values) < 2:
        return {"value": mean, "low": math.nan, "high": math.nan}
    from scipy.special import stdtrit

    t = float(stdtrit(len(values) - 1, 0.5 + CONFIDENCE / 2))
    half = t * float(values.std(ddof=1)) / math.sqrt(len(values))
    return {"value": mean, "low": max(mean - half, 0.0), "high": mean + half}


def _complete_sweep(
    look: Look, kind: Kind, seed: int, found: Boundary, cap: float
) -> list[Observation]:
    """Returns observations at 1, 2, 4 … (a rate: powers of two around), the last beyond."""
    edge = found.fails if math.isfinite(found.fails) else found.holds
    top = min(2.0 ** math.ceil(math.log2(edge)), cap)
    low = 1.0 if kind == "concurrency" else top / 64
    sizes = {low * 2.0**k for k in range(round(math.log2(top / low)) + 1)} | {top}
    sizes |= {found.holds} if found.holds else set()
    return [look(Load(kind=kind, size=size), seed) for size in sorted(sizes)]


def expected_range(
    look: Look, slos: Sequence[Slo], kind: Kind, seed: int, at: Observation | None, cap: float
) -> tuple[float, float] | None:
    """Returns the capacities with latencies at both ends of the model's error."""
    if at is None:
        return None
    bands = [_band(at.expectation.intervals, at.metrics, slo) for slo in slos]
    if any(band is None for band in bands):
        return None
    found = []
    for end in (1, 0):
        scaled = [
            replace(slo, limit_ms=slo.limit_ms / band[end])
            for slo, band in zip(slos, bands, strict=True)
            if band is not None
        ]
        edge = boundary_of(look, scaled, kind, seed, start=at.load.size, cap=cap)
        found.append(edge.holds)
    return found[0], found[1]


def _band(
    intervals: Mapping[str, Interval], metrics: Mapping[str, float], slo: Slo
) -> tuple[float, float] | None:
    """Returns measured over predicted, from and to, of what a limit bounds."""
    # Only means were held against measurements; percentiles and gaps are taken to err alike.
    name = f"mean_{'tpot' if slo.kind == 'itl' else slo.kind}_ms"
    interval = intervals.get(name)
    if interval is None:
        return None
    return interval.low / metrics[name], interval.high / metrics[name]


def _is_in_step(seen: Observation) -> bool:
    load = seen.simulation.result.workload
    lengths = (load.input_tokens, load.output_tokens)
    is_uniform = all(int(tokens.min()) == int(tokens.max()) for tokens in lengths)
    return is_uniform and load.max_concurrency is not None


def _notes(
    sweep: Sequence[Observation], slos: Sequence[Slo], found: Boundary, per_seed: Sequence[float]
) -> list[str]:
    notes = []
    if _is_in_step(sweep[0]):
        notes.append(
            "all requests have one length: those that start together end together, and TTFT is "
            "that of a whole wave; --random-range-ratio spreads them"
        )
    above = [o for o in sweep if o.load.size > found.fails and o.excess(slos) <= 0]
    if above:
        notes.append(f"larger loads keep the limits again, such as {above[0].load.shown}")
    if math.isinf(found.fails):
        notes.append(
            "no load breaks a limit: those who wait for a place in a batch have no limit on it; "
            "give one for ttft or e2el"
        )
    if len(per_seed) > 1 and len(set(per_seed)) == 1:
        notes.append("every seed gives the same load: lengths and arrivals hardly vary")
    return notes
