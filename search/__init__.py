"""What to choose: search space, feasibility, Optuna study, frontier and report.

>>> from dynosim.search import search
>>> result = search("space.yaml", output_dir="runs/first")  # doctest: +SKIP
>>> result.knee.deployment  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynosim.hardware_models.late_names import late_names

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

__getattr__ = late_names(__name__, _HOMES)
