"""Names in a space that no catalogue knows, found before any trial runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dynosim.hardware_models.backends import get_backend
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import get_gpu
from dynosim.hardware_models.llm.catalogue import get_model
from dynosim.hardware_models.registry import find_module
from dynosim.search.dimension import Dimension
from dynosim.search.source import Source


def name_problems(dimensions: Iterable[Dimension], source: Source) -> list[UserError]:
    """Returns one error a name of a model, GPU, backend, version or router that is unknown."""
    return []
