"""Holds what was measured against the shipped tables of the same GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.measure.ledger import Ledger
from dynosim.hardware_models.measure.timing import median, quantile
from dynosim.hardware_models.measure.write import known_gpu
from dynosim.hardware_models.timing.chain import TABLE_BACKENDS
from dynosim.hardware_models.timing.tables import (
    FAMILY_KEYS,
    SHARED_FAMILIES,
    MissingTable,
    OpTable,
    load_table,
)


@dataclass(frozen=True)
class Ratio:
    """Measured over shipped seconds of the shapes that both have, per family, dtype and backend."""

    family: str
    dtype: str
    backend: str
    shapes: int
    median: float
    p10: float
    p90: float


def compare(ledger: Ledger) -> list[Ratio]:
    """Returns one ratio a family, dtype and backend that share shapes with the measurement.

    Raises UserError where no tables of this GPU are shipped.
    """
    gpu = known_gpu(ledger.origin)
    if gpu is None:
        raise UserError(
            f"no tables of {ledger.origin['device']!r} are shipped to compare with",
            where="--compare",
            hint="dynosim list gpus",
        )
    return [
        ratio
        for family in FAMILY_KEYS
        if ledger.timings(family)
        for backend in ((SHARED_FAMILIES[family],) if family in SHARED_FAMILIES else TABLE_BACKENDS)
        for ratio in _ratios(ledger, gpu, backend, family)
    ]


def _ratios(ledger: Ledger, gpu: str, backend: str, family: str) -> list[Ratio]:
    try:
        shipped = _by_shape(load_table(gpu, backend, family))
    except MissingTable:
        return []
    found: dict[str, list[float]] = {}
    for case, timing in ledger.timings(family).items():
        if case.values in shipped:
            ratio = timing.median_s / shipped[case.values]
            found.setdefault(_dtype(case.key), []).append(ratio)
    return [
        Ratio(family, dtype, backend, len(r), median(r), quantile(r, 0.1), quantile(r, 0.9))
        for dtype, r in sorted(found.items())
    ]


def _by_shape(table: OpTable) -> Mapping[tuple[Any, ...], float]:
    columns = [table.column(key).tolist() for key in table.keys]
    return dict(zip(zip(*columns, strict=True), table.latency_s.tolist(), strict=True))


def _dtype(key: Mapping[str, Any]) -> str:
    return next(str(value) for name, value in key.items() if name.endswith("_dtype"))
