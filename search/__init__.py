"""What to choose: search space, feasibility, Optuna study, frontier and report.

>>> from dynosim.search import search
>>> result = search("space.yaml", output_dir="runs/first")  # doctest: +SKIP
>>> result.knee.deployment  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynosim.search.rehearsal import DryRun, dry_run
    from dynosim.search.result import SearchResult
    from dynosim.search.space import SearchSpace, load_space, parse_space
    from dynosim.search.study import search
    from dynosim.search.trial import Trial

__all__ = [
    "DryRun",
    "SearchResult",
    "SearchSpace",
    "Trial",
    "dry_run",
    "load_space",
    "parse_space",
    "search",
]

_HOMES = {
    "DryRun": "rehearsal",
    "SearchResult": "result",
    "SearchSpace": "space",
    "Trial": "trial",
    "dry_run": "rehearsal",
    "load_space": "space",
    "parse_space": "space",
    "search": "study",
}


def __getattr__(name: str) -> object:
    # Imported on first use: a worker process passes through this package and needs none of it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
