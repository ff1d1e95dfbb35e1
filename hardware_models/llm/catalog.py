"""The shipped architectures, one small ``config.json`` per hub name."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from dynosim.hardware_models.cards import DATA
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.llm.architecture import LlmArchitecture
from dynosim.hardware_models.llm.config import parse_config, read_config
from dynosim.hardware_models.llm.fields import read_json
from dynosim.hardware_models.names import one_hub_name

_FOLDER = DATA / "models"


@lru_cache(maxsize=1)
def list_models() -> tuple[str, ...]:
    """Returns the hub names of all shipped architectures, sorted without regard to case."""
    names = (path.stem.replace("--", "/", 1) for path in _FOLDER.glob("*.json"))
    return tuple(sorted(names, key=str.casefold))


@lru_cache(maxsize=256)
def get_model(name_or_path: str) -> LlmArchitecture:
    """Returns the architecture of a hub name, or of a ``config.json`` or the folder it is in.

    Names are forgiving: case and separators do not matter, and the organisation may be left out
    where the rest names one model. Raises UserError with the nearest names for an unknown one.
    """
    path = Path(name_or_path)
    if path.suffix == ".json" or path.is_dir():
        return read_config(path / "config.json" if path.is_dir() else path)
    try:
        name = one_hub_name(name_or_path, list_models())
    except UserError as error:
        raise UserError(error.message, hint=f"{error.hint}; or give a config.json") from None
    return parse_config(model_config(name), name=name, where=str(_file(name)))


def model_config(name: str) -> dict[str, Any]:
    """Returns the shipped configuration of an exact hub name.

    A file may stand on another: ``_based_on`` names it, and the file's own keys replace those
    of the other.
    """
    content = read_json(_file(name))
    base = content.get("_based_on")
    return content if base is None else {**model_config(base), **content}


def _file(name: str) -> Path:
    return _FOLDER / f"{name.replace('/', '--', 1)}.json"
