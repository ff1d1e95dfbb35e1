"""What GPUs cost to rent, to buy and to run: the cards' dated figures, or the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynosim.hardware_models.errors import InputErrors, UserError
from dynosim.hardware_models.gpus import Gpu, get_gpu, gpu_sources
from dynosim.search.field_type import nearest
from dynosim.search.source import KeyPath, Source, read_yaml

HOURS_A_MONTH = 730.0
"""365 days of 24 hours over 12 months."""

_PER_GPU = ("cloud_usd_hour", "purchase_usd")
_GENERAL = ("electricity_usd_kwh", "pue", "hosting_usd_gpu_month", "server_usd_gpu")


@dataclass(frozen=True, kw_only=True)
class Price:
    """A figure in dollars and where it comes from; None where nobody gave one."""

    usd: float | None
    source: str


@dataclass(frozen=True, kw_only=True)
class Prices:
    """``own`` are the user's figures, by GPU key and figure; they go before the cards'.

    Without a price of electricity power is left out of what owning costs. ``pue`` is what a site
    draws over what its boards draw; ``server_usd_gpu`` and ``hosting_usd_gpu_month`` are what a
    GPU's share of a server costs to buy and of a room costs a month.
    """

    own: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    electricity_usd_kwh: float | None = None
    pue: float = 1.0
    hosting_usd_gpu_month: float = 0.0
    server_usd_gpu: float = 0.0

    def rent(self, gpu: Gpu) -> Price:
        """Returns dollars per GPU and hour."""
        return self._price(gpu, "cloud_usd_hour", "cloud_price_usd_hour", gpu.cloud_price_usd_hour)

    def purchase(self, gpu: Gpu) -> Price:
        """Returns dollars per GPU, without its server."""
        return self._price(gpu, "purchase_usd", "list_price_usd", gpu.list_price_usd)

    def _price(self, gpu: Gpu, own: str, figure: str, shipped: float | None) -> Price:
        given = self.own.get(gpu.key, {}).get(own)
        if given is not None:
            return Price(usd=given, source="your prices")
        if shipped is None:
            return Price(usd=None, source="no price is known")
        if gpu.key not in _shipped_keys():
            return Price(usd=shipped, source="your card")
        source = gpu_sources(gpu.key)[figure]
        title = source.title.partition(",")[0]
        return Price(usd=shipped, source=f"{title}, {source.date}")


def _shipped_keys() -> tuple[str, ...]:
    from dynosim.hardware_models.gpus import list_gpus

    return list_gpus()


def read_prices(path: Path) -> Prices:
    """Returns the prices of a YAML file; InputErrors says all that is wrong.

    ``gpus:`` has GPU names with ``cloud_usd_hour`` and ``purchase_usd``; beside it stand
    ``electricity_usd_kwh``, ``pue``, ``hosting_usd_gpu_month`` and ``server_usd_gpu``.
    """
    values, source = read_yaml(path)
    errors: list[UserError] = []
    general = _numbers(
        {k: v for k, v in values.items() if k != "gpus"}, _GENERAL, (), source, errors
    )
    own: dict[str, dict[str, float]] = {}
    listed = values.get("gpus", {})
    if not isinstance(listed, dict):
        errors.append(source.error(("gpus",), "no mapping", "allowed: GPU: {cloud_usd_hour: 2.5}"))
        listed = {}
    for name, figures in listed.items():
        try:
            key = get_gpu(str(name)).key
        except UserError as error:
            errors.append(error.at(source.where(("gpus", name))))
            continue
        row = figures if isinstance(figures, dict) else {"cloud_usd_hour": figures}
        own[key] = _numbers(row, _PER_GPU, ("gpus", name), source, errors)
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)
    return Prices(own=own, **general)


def _numbers(
    values: Mapping[str, Any],
    known: tuple[str, ...],
    path: KeyPath,
    source: Source,
    errors: list[UserError],
) -> dict[str, float]:
    found = {}
    for name, value in values.items():
        if name not in known:
            close = nearest(name, known)
            hint = f"nearest: {close[0]}; " if close else ""
            allowed = f"{hint}allowed: {', '.join(known)}"
            errors.append(source.error((*path, name), "unknown key", allowed))
        elif isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            errors.append(source.error((*path, name), f"found {value!r}", "allowed: a number >= 0"))
        else:
            found[name] = float(value)
    return found
