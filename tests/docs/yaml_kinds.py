"""Which loader a YAML block is for, and that it takes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.measure.grid import read_grid
from dynosim.hardware_models.timing.own_tables import own_tables
from dynosim.pair import read_pair
from dynosim.planning.prices import read_prices
from dynosim.search.space import load_space


def _space(path: Path) -> None:
    load_space(path)


def _layers(path: Path) -> None:
    read_pair(str(path), None)


def _gpu_card(path: Path) -> None:
    get_gpu(str(path))


def _grid(path: Path) -> None:
    read_grid(str(path))


def _tables(path: Path) -> None:
    own_tables(str(path.parent))


def _prices(path: Path) -> None:
    read_prices(path)


LOADERS: dict[str, Callable[[Path], None]] = {
    "space": _space,
    "layers": _layers,
    "GPU card": _gpu_card,
    "grid": _grid,
    "kernel tables": _tables,
    "prices": _prices,
}
"""What a block may be ``as:``; without a mark it is a space, which a deployment is too."""
