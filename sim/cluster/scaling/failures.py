"""What fails, and when: events that were asked for, and crashes by chance."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from dynosim.hardware_models.errors import UserError

Kind = Literal["crash", "gpu_loss", "slow", "router"]
PoolName = Literal["", "prefill"]
"""Whose replica: the prefill pool's, or the other's, which may be all there is."""

_WHERE = r":(?P<pool>prefill)?(?P<replica>\d+)"
_FORMS: dict[str, tuple[str, str]] = {
    "crash": (_WHERE, "crash@120:0"),
    "gpu_loss": (rf"{_WHERE}x(?P<seconds>[\d.]+)", "gpu_loss@300:prefill1x600"),
    "slow": (rf"{_WHERE}x(?P<factor>[\d.]+)x(?P<seconds>[\d.]+)", "slow@60:2x1.5x300"),
    "router": (r"x(?P<seconds>[\d.]+)", "router@90x5"),
}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One event: steps of a ``slow`` replica take ``factor`` times as long for ``seconds``.

    The replica is one of the ``pool`` prefill, or of the one that there is beside it or alone.
    """

    kind: Kind
    time_s: float
    pool: PoolName = ""
    replica: int = 0
    seconds: float = 0.0
    factor: float = 1.0


def parse_failures(text: str | None, num_replicas: int, pool: PoolName = "") -> tuple[Failure, ...]:
    """Returns the events of a text like "crash@120:0, slow@60:2x1.5x300" that befall one pool.

    Those of routers befall each. Raises UserError for what is none, and for a replica that there
    never is.
    """
    found = all_failures(text)
    own = tuple(f for f in found if f.kind == "router" or f.pool == pool)
    for failure in own:
        if failure.replica >= num_replicas:
            raise UserError(
                f"{pool} replica {failure.replica} fails, of {num_replicas}".lstrip(),
                where="failures",
                hint=f"allowed: 0 to {num_replicas - 1}",
            )
    return own


def check_failures(text: str | None, *, has_prefill: bool) -> None:
    """Raises UserError for what is no failure, and for one of a prefill pool that there is not."""
    for failure in all_failures(text):
        if failure.pool and not has_prefill:
            raise UserError(
                f"prefill replica {failure.replica} fails, and there is no prefill pool",
                where="failures",
                hint="leave out `prefill`, or give prefill_replicas",
            )


def all_failures(text: str | None) -> tuple[Failure, ...]:
    """Returns the events of a text; raises UserError for what is none."""
    return tuple(_parse(part.strip()) for part in text.split(",")) if text else ()


def _parse(text: str) -> Failure:
    kind, _, rest = text.partition("@")
    form, example = _FORMS.get(kind, ("", ""))
    match = re.fullmatch(rf"(?P<time_s>[\d.]+){form}", rest) if example else None
    try:
        found = {} if match is None else match.groupdict()
        pool = found.pop("pool", None) or ""
        values = {k: float(v) for k, v in found.items()}
    except ValueError:
        values = {}
    if not values or values.get("factor", 1.0) <= 0.0:
        examples = ", ".join(example for _, example in _FORMS.values())
        raise UserError(f"found {text!r}", where="failures", hint=f"as in {examples}")
    replica = int(values.pop("replica", 0))
    return Failure(kind=kind, pool=pool, replica=replica, **values)  # type: ignore[arg-type]
