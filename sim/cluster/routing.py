"""The routers of a run, made from their options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.registry import find_module, module_names
from dynosim.sim.cluster.balancers.base import Balancer
from dynosim.sim.cluster.rank_router import RankRouter
from dynosim.sim.cluster.router_inputs import RouterInputs
from dynosim.sim.cluster.router_options import RouterOptions
from dynosim.sim.cluster.routers.base import ReplicaView, Router, RouterContext

_ROUTERS = "dynosim.sim.cluster.routers"


@dataclass(frozen=True, kw_only=True)
class Routing:
    """Routers side by side, and what they were given.

    Where a replica's data-parallel ranks share nothing, there are ``ranks_apart`` of them, and each
    is routed to by itself.
    """

    options: RouterOptions
    routers: tuple[Router, ...]
    inputs: RouterInputs
    ranks_apart: int = 1

    @property
    def is_blind(self) -> bool:
        """Whether every choice can be made ahead of the clock."""
        return self.options.admits_all and all(router.is_blind for router in self.routers)

    @property
    def sees_blocks(self) -> bool:
        """Whether it matters which KV blocks engines hold or have cached."""
        return self.inputs.index is not None or self.options.router_max_kv_use is not None

    @property
    def may_wait(self) -> bool:
        """Whether requests wait at a router while all replicas are closed."""
        return self.options.has_thresholds and self.options.router_overload == "wait"

    @property
    def is_live(self) -> bool:
        """Whether it matters when things happen at replicas, and not only what has until now.

        No engine may run ahead of the clock then.
        """
        return self.may_wait or self.options.router_event_lag_s > 0.0


class Rotation:
    """The routers as one, each of which gets a request in turn."""

    is_blind = True

    def __init__(self, routers: Sequence[Router]) -> None:
        self._routers = routers
        self._turn = 0

    def choose(self, request: int, replicas: Sequence[ReplicaView], /) -> int:
        """Returns the choice of the router whose turn it is."""
        router = self._routers[self._turn]
        self._turn = (self._turn + 1) % len(self._routers)
        return router.choose(request, replicas)


def make_routing(
    options: RouterOptions,
    inputs: RouterInputs,
    num_replicas: int,
    seed: int,
    balancers: list[Balancer],
    ranks: int,
) -> Routing:
    """Returns the routers that ``options`` describe.

    ``balancers`` spread each replica's requests over its ``ranks``; none where they do not have to.
    Raises UserError for an unknown router, with the nearest names.
    """
    module = find_module(_ROUTERS, "router", options.router)
    routers: list[Router] = []
    for number in range(options.router_replicas):
        router: Router = module.make(
            RouterContext(
                num_replicas=num_replicas, seed=seed, number=number, options=options, inputs=inputs
            )
        )
        routers.append(RankRouter(router, balancers, ranks) if balancers else router)
    apart = ranks if balancers else 1
    return Routing(options=options, routers=tuple(routers), inputs=inputs, ranks_apart=apart)


def check_options(options: RouterOptions, routers: Sequence[str]) -> None:
    """Raises UserError where an option is set that none of the routers in use has."""
    options.check_admission()
    own = {name for router in routers for name in _options_of(router)}
    for name in sorted(set(options.changed()) - own):
        owners = [r for r in module_names(_ROUTERS) if name in _options_of(r)]
        if owners:
            message = f"{' and '.join(dict.fromkeys(routers))} has no such option"
            raise UserError(message, where=name, hint=f"it is one of {', '.join(owners)}")


def _options_of(router: str) -> tuple[str, ...]:
    return getattr(find_module(_ROUTERS, "router", router), "OPTIONS", ())
