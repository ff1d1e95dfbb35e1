"""Public names of a package that are loaded when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def late_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of ``package``, whose names ``homes`` are in these modules of it.

    Whoever passes through the package, or needs one of the names, does not wait for the others.
    The function returned raises AttributeError for other names.

    >>> __getattr__ = late_names("dynosim.hardware_models", {"get_gpu": "gpus"})
    >>> __getattr__("get_gpu").__module__
    'dynosim.hardware_models.gpus'
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return load
