"""What fails, and when: events that were asked for, and crashes by chance."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from dynosim.hardware_models.errors import UserError

Kind = Literal["crash", "gpu_loss", "slow", "router"]

_FORMS: dict[str, tuple[str, str]] = {
    "crash": (r":(?P<replica>\d+)", "crash@120:0"),
    "gpu_loss": (r":(?P<replica>\d+)x(?P<seconds>[\d.]+)", "gpu_loss@300:1x600"),
    "slow": (r":(?P<replica>\d+)x(?P<factor>[\d.]+)x(?P<seconds>[\d.]+)", "slow@60:2x1.5x300"),
    "router": (r"x(?P<seconds>[\d.]+)", "router@90x5"),
}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One event: steps of a ``slow`` replica take ``factor`` times as long for ``seconds``."""

    kind: Kind
    time_s: float
    replica: int = 0
    seconds: float = 0.0
    factor: float = 1.0


def parse_failures(text: str | None, num_replicas: int) -> tuple[Failure, ...]:
    """Returns the events of a text like "crash@120:0, slow@60:2x1.5x300".

    Raises UserError for what is none, and for a replica that there never is.
    """
    found = [_parse(part.strip()) for part in text.split(",")] if text else []
    for failure in found:
        if failure.replica >= num_replicas:
            raise UserError(
                f"replica {failure.replica} fails, of {num_replicas}",
                where="failures",
                hint=f"allowed: 0 to {num_replicas - 1}",
            )
    return tuple(found)


def _parse(text: str) -> Failure:
    kind, _, rest = text.partition("@")
    form, example = _FORMS.get(kind, ("", ""))
    match = re.fullmatch(rf"(?P<time_s>[\d.]+){form}", rest) if example else None
    try:
        values = {} if match is None else {k: float(v) for k, v in match.groupdict().items()}
    except ValueError:
        values = {}
    if not values or values.get("factor", 1.0) <= 0.0:
        examples = ", ".join(example for _, example in _FORMS.values())
        raise UserError(f"found {text!r}", where="failures", hint=f"as in {examples}")
    replica = int(values.pop("replica", 0))
    return Failure(kind=kind, replica=replica, **values)  # type: ignore[arg-type]
