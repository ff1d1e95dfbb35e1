"""``--slo``: limits on latency percentiles, as words of a command line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from dynosim.hardware_models.errors import UserError
from dynosim.search.metric import STATISTICS
from dynosim.search.slo import KINDS, Slo

DEFAULT_STATISTIC = "p95"

SloWords = Annotated[
    tuple[str, ...],
    Parameter(
        name="--slo",
        consume_multiple=True,
        negative=(),
        show_default=False,
        metavar="[STAT_]KIND:MS...",
        help="Limits in ms, such as `ttft:500 p99_tpot:50`; p95 where no statistic is named. "
        "By default the file's `slos:`.",
    ),
]


def parse_slo_words(words: Sequence[str]) -> tuple[Slo, ...]:
    """Returns ``("ttft:500", "p99_tpot:50")`` as limits; UserError for anything else."""
    found: dict[str, Slo] = {}
    for word in words:
        name, _, number = word.partition(":")
        statistic, _, kind = name.rpartition("_")
        statistic = statistic or DEFAULT_STATISTIC
        try:
            limit_ms = float(number)
        except ValueError:
            limit_ms = math.nan
        slo = Slo(kind, statistic, limit_ms)
        is_known = kind in KINDS and statistic in STATISTICS
        if not is_known or slo.metric in found or not 0 < limit_ms < math.inf:
            raise UserError(
                f"found {word!r}",
                where="--slo",
                hint=f"allowed: [STATISTIC_]KIND:MILLISECONDS, once each, KIND one of "
                f"{', '.join(KINDS)}, STATISTIC one of {', '.join(STATISTICS)}",
            )
        found[slo.metric] = slo
    return tuple(found.values())


def required_slos(words: Sequence[str], written: tuple[Slo, ...]) -> tuple[Slo, ...]:
    """Returns the limits of the flag, else those of the file; UserError where there are none."""
    slos = parse_slo_words(words) or written
    if not slos:
        raise UserError(
            "no limit on any latency is given",
            where="--slo",
            hint="allowed: such as --slo ttft:500 tpot:50 (p95, in ms), or `slos:` in the file",
        )
    return slos
