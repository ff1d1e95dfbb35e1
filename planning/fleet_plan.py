"""How many of which GPU: every candidate of a space sized for a demand, and their frontier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from dynosim.hardware_models.errors import UserError
from dynosim.planning.bottleneck import bottleneck
from dynosim.planning.boundary import find_boundary
from dynosim.planning.capacity import RATE_CAP, expected_range
from dynosim.planning.demand import Demand
from dynosim.planning.fleet import Fleet, Reserve, Unit, size_fleet, units_for
from dynosim.planning.load import Load, check_fixed, workload_at
from dynosim.planning.observation import Observation, observe
from dynosim.planning.prices import Prices
from dynosim.search.evaluator import energy
from dynosim.search.feasibility import screen_for
from dynosim.search.slo import Slo
from dynosim.search.space import SearchSpace
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import Simulation

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SWING = 0.2
"""Share by which the demand is moved to show what the answer depends on."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One kind of unit, and the fleet of it; ``fleet`` is None where ``reason`` says why not.

    ``unit`` is one of them, ``deployment`` all of them. ``capacity`` is what a unit serves within
    the limits (requests/s), ``at_peak`` what happens to it at the peak with every unit up,
    ``use_of_limit`` the largest share of a limit that is used then. ``units_less`` and
    ``units_more`` are for SWING less and more demand, ``units_expected`` for a capacity at the fast
    and the slow end of the model's error.
    """

    unit: Deployment

    deployment: Deployment
    capacity: float = 0.0
    fleet: Fleet | None = None
    reason: str = ""
    at_peak: Observation | None = None
    use_of_limit: float = float("nan")
    narrowest: str = ""
    units_less: int = 0
    units_more: int = 0
    units_expected: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class FleetPlan:
    """Options in the order of the space; ``frontier`` are those that no other beats in both rent a
    month and use of the limits, the cheapest first."""

    demand: Demand
    reserve: Reserve
    slos: tuple[Slo, ...]
    options: tuple[Option, ...]
    frontier: tuple[Option, ...]

    @property
    def feasible(self) -> list[Option]:
        """The options that serve the demand, the cheapest first; those without a price last."""
        return sorted((o for o in self.options if o.fleet is not None), key=_rent)

    @property
    def causes(self) -> Counter[str]:
        """How many options do not serve the demand, by the head of the reason."""
        return Counter(o.reason.partition(":")[0] for o in self.options if o.fleet is None)

    def to_frame(self) -> pd.DataFrame:
        """Returns all options, a row each, the cheapest first; see :mod:`.fleet_table`."""
        import pandas as pd

        from dynosim.planning.fleet_table import columns, rows

        return pd.DataFrame(rows(self), columns=columns(self))

    def plot(self, title: str = "") -> Figure:
        """Returns the figure of rent against latency at the peak."""
        from dynosim.planning.fleet_figure import fleet_figure

        return fleet_figure(self, title)


def plan_fleets(
    space: SearchSpace,
    demand: Demand,
    *,
    reserve: Reserve | None = None,
    prices: Prices | None = None,
    on_option: Callable[[Option], None] = lambda option: None,
) -> FleetPlan:
    """Returns every candidate of ``space`` as a fleet that serves ``demand``.

    A candidate is the unit that is multiplied: one replica, or with ``prefill_replicas`` two pools
    as they are written. ``max_gpus`` bounds the fleet. UserError where the space has no limits,
    fixes its load or its number of replicas, scales itself, or has more candidates than
    ``n_trials``.
    """
    _check(space)
    reserve, prices = reserve or Reserve(), prices or Prices()
    options = []
    for deployment in space.deployments():
        option = _option(space, deployment, demand, reserve, prices)
        on_option(option)
        options.append(option)
    return FleetPlan(
        demand=demand,
        reserve=reserve,
        slos=space.slos,
        options=tuple(options),
        frontier=tuple(_frontier(options)),
    )


def _check(space: SearchSpace) -> None:
    check_fixed(space.workload)
    if not space.slos:
        hint = "allowed: such as {ttft: {p95: 500}, tpot: {p95: 50}}, in ms"
        raise UserError("no limit on any latency is given", where="slos", hint=hint)
    given = {d.name: d.values for d in space.dimensions}
    has_one_pool = any(count == 0 for count in given.get("prefill_replicas", (0,)))
    if has_one_pool and given.get("replicas", (1,)) != (1,):
        raise UserError("is what a plan finds", where="replicas", hint="leave it out")
    for name in ("autoscaler", "prefill_autoscaler"):
        if given.get(name, (None,)) != (None,):
            hint = "leave it out: a curve's costs are also given hour by hour"
            raise UserError("a plan is of a fixed fleet", where=name, hint=hint)
    if space.size > space.n_trials:
        raise UserError(
            f"{space.size:,} candidates, each of which takes a search of its own",
            where="n_trials",
            hint=f"at most {space.n_trials}: fix some fields, or raise n_trials",
        )


def _option(
    space: SearchSpace, deployment: Deployment, demand: Demand, reserve: Reserve, prices: Prices
) -> Option:
    seed, slos = space.seed, space.slos

    @cache
    def look(load: Load, seed: int) -> Observation:
        return observe(deployment, space.workload, load, slos, seed)

    def keeps(load: Load) -> bool:
        return look(load, seed).excess(slos) <= 0

    refusal = screen_for(workload_at(space.workload, rate_of(1.0), seed))(deployment)
    if refusal is not None:
        return Option(
            unit=deployment, deployment=deployment, reason=f"{refusal.reason}: {refusal.detail}"
        )
    found = find_boundary(keeps, "rate", start=1.0, cap=RATE_CAP)
    if not found.holds:
        why = bottleneck(look(rate_of(found.fails), seed), slos)
        return Option(
            unit=deployment, deployment=deployment, reason=f"a limit is missed at any load: {why}"
        )
    at = look(rate_of(found.holds), seed)
    fleet = size_fleet(
        demand,
        found.holds,
        reserve,
        unit=_unit(at.simulation),
        output_tokens=float(at.simulation.result.workload.output_tokens.mean()),
        watts_at=lambda rate: _watts(look(rate_of(rate), seed)),
        prices=prices,
    )
    if space.max_gpus is not None and fleet.gpus > space.max_gpus:
        reason = f"more GPUs than max_gpus: {fleet.gpus} needed, {space.max_gpus} allowed"
        return Option(unit=deployment, deployment=deployment, capacity=found.holds, reason=reason)
    at_peak = look(rate_of(demand.peak / fleet.units), seed)
    expected = expected_range(look, slos, "rate", seed, at, RATE_CAP)
    return Option(
        unit=deployment,
        deployment=_times(deployment, fleet.units),
        capacity=found.holds,
        fleet=fleet,
        at_peak=at_peak,
        use_of_limit=1.0 + at_peak.excess(slos),
        narrowest=bottleneck(look(rate_of(found.fails), seed), slos),
        units_less=units_for(demand.peak * (1 - SWING), found.holds, reserve),
        units_more=units_for(demand.peak * (1 + SWING), found.holds, reserve),
        units_expected=_expected(expected, demand, reserve),
    )


def _times(unit: Deployment, count: int) -> Deployment:
    """Returns so many units as one deployment."""
    return replace(
        unit, replicas=count * unit.replicas, prefill_replicas=count * unit.prefill_replicas
    )


def _unit(simulation: Simulation) -> Unit:
    """Returns the GPUs of a unit, a pool each."""
    prefill, deployment = simulation.prefill, simulation.deployment
    decode = (simulation.engine.gpu, deployment.num_gpus - deployment.num_prefill_gpus)
    if prefill is None:
        return (decode,)
    return decode, (prefill.engine.gpu, deployment.num_prefill_gpus)


def _watts(seen: Observation) -> float:
    """Returns the mean draw of a unit's boards."""
    return float(energy(seen.simulation, seen.metrics)["mean_watts"])


def rate_of(requests_s: float) -> Load:
    """Returns the load of one unit."""
    return Load(kind="rate", size=requests_s)


def _expected(
    capacities: tuple[float, float] | None, demand: Demand, reserve: Reserve
) -> tuple[int, int] | None:
    if capacities is None or not capacities[0]:
        return None
    slow, fast = capacities
    return units_for(demand.peak, fast, reserve), units_for(demand.peak, slow, reserve)


def _rent(option: Option) -> float:
    assert option.fleet is not None, "no fleet"
    month = option.fleet.rent_usd_month
    return float("inf") if month is None else month


def _frontier(options: Sequence[Option]) -> Iterator[Option]:
    priced = [o for o in options if o.fleet and o.fleet.rent_usd_month is not None]
    least = float("inf")
    for option in sorted(priced, key=lambda o: (_rent(o), o.use_of_limit)):
        if option.use_of_limit < least:
            least = option.use_of_limit
            yield option
