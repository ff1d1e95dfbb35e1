"""How many of which GPU: every candidate of a space sized for a demand, and their frontier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from dynosim.hardware_models.errors import UserError
from dynosim.planning.bottleneck import bottleneck
from dynosim.planning.boundary import find_boundary
from dynosim.planning.capacity import RATE_CAP, expected_range
from dynosim.planning.demand import Demand
from dynosim.planning.fleet import Fleet, Reserve, replicas_for, size_fleet
from dynosim.planning.load import Load, check_fixed, workload_at
from dynosim.planning.observation import Observation, observe
from dynosim.planning.prices import Prices
from dynosim.search.feasibility import screen_for
from dynosim.search.slo import Slo
from dynosim.search.space import SearchSpace
from dynosim.sim.deployment import Deployment

SWING = 0.2
"""Share by which the demand is moved to show what the answer depends on."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One kind of replica, and the fleet of it; ``fleet`` is None where ``reason`` says why not.

    ``capacity`` is what one replica serves within the limits (requests/s), ``at_peak`` what happens
    at the peak with every replica up, ``use_of_limit`` the largest share of a limit that is used
    then. ``replicas_less`` and ``replicas_more`` are for SWING less and more demand,
    ``replicas_expected`` for a capacity at the fast and the slow end of the model's error.
    """

    deployment: Deployment
    capacity: float = 0.0
    fleet: Fleet | None = None
    reason: str = ""
    at_peak: Observation | None = None
    use_of_limit: float = float("nan")
    narrowest: str = ""
    replicas_less: int = 0
    replicas_more: int = 0
    replicas_expected: tuple[int, int] | None = None


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


def plan_fleets(
    space: SearchSpace,
    demand: Demand,
    *,
    reserve: Reserve | None = None,
    prices: Prices | None = None,
    on_option: Callable[[Option], None] = lambda option: None,
) -> FleetPlan:
    """Returns every candidate of ``space`` as a fleet that serves ``demand``.

    ``replicas`` of the space are what is asked for, and must not be given; ``max_gpus`` bounds the
    fleet. UserError where the space has no limits, fixes its load, or has more candidates than
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
    replicas = [d for d in space.dimensions if d.name == "replicas" and d.values != (1,)]
    if replicas:
        raise UserError("is what a plan finds", where="replicas", hint="leave it out")
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
        return Option(deployment=deployment, reason=f"{refusal.reason}: {refusal.detail}")
    found = find_boundary(keeps, "rate", start=1.0, cap=RATE_CAP)
    if not found.holds:
        why = bottleneck(look(rate_of(found.fails), seed), slos)
        return Option(deployment=deployment, reason=f"a limit is missed at any load: {why}")
    at = look(rate_of(found.holds), seed)
    engine = at.simulation.engine
    fleet = size_fleet(
        demand,
        found.holds,
        reserve,
        gpu=engine.gpu,
        gpus_per_replica=deployment.gpus_per_replica,
        output_tokens=float(at.simulation.result.workload.output_tokens.mean()),
        busy_share_at=lambda rate: look(rate_of(rate), seed).metrics["busy_share"],
        prices=prices,
    )
    if space.max_gpus is not None and fleet.gpus > space.max_gpus:
        reason = f"more GPUs than max_gpus: {fleet.gpus} needed, {space.max_gpus} allowed"
        return Option(deployment=deployment, capacity=found.holds, reason=reason)
    at_peak = look(rate_of(demand.peak / fleet.replicas), seed)
    expected = expected_range(look, slos, "rate", seed, at, RATE_CAP)
    return Option(
        deployment=replace(deployment, replicas=fleet.replicas),
        capacity=found.holds,
        fleet=fleet,
        at_peak=at_peak,
        use_of_limit=1.0 + at_peak.excess(slos),
        narrowest=bottleneck(look(rate_of(found.fails), seed), slos),
        replicas_less=replicas_for(demand.peak * (1 - SWING), found.holds, reserve),
        replicas_more=replicas_for(demand.peak * (1 + SWING), found.holds, reserve),
        replicas_expected=_expected(expected, demand, reserve),
    )


def rate_of(requests_s: float) -> Load:
    """Returns the load of one replica."""
    return Load(kind="rate", size=requests_s)


def _expected(
    capacities: tuple[float, float] | None, demand: Demand, reserve: Reserve
) -> tuple[int, int] | None:
    if capacities is None or not capacities[0]:
        return None
    slow, fast = capacities
    return replicas_for(demand.peak, fast, reserve), replicas_for(demand.peak, slow, reserve)


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
