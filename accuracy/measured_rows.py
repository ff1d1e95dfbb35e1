"""Rows of a measured set and where each stands: what the readers of sets share."""

from __future__ import annotations

import csv
import gzip
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dynosim.accuracy.case import Case
from dynosim.hardware_models.llm.catalog import get_model, list_models
from dynosim.sim.deployment import Deployment


@dataclass(frozen=True)
class Row:
    """One row by column; empty cells read as absent. ``where`` is ``file:line``."""

    values: Mapping[str, str]
    where: str

    def text(self, name: str) -> str:
        """Returns a cell as it stands; KeyError where the set has no such column."""
        return self.values[name]

    def number(self, name: str) -> float:
        """Returns a cell as a number, NaN where it is empty."""
        return float(self.values[name] or "nan")

    def integer(self, name: str) -> int:
        """Returns a cell as a whole number; ValueError where it is none."""
        return int(float(self.values[name]))

    def measured(self, names: Mapping[str, str]) -> dict[str, float]:
        """Returns metric -> figure for ``names``, metric -> column, without empty cells."""
        filled = {metric: self.number(column) for metric, column in names.items()}
        return {metric: value for metric, value in filled.items() if value == value}


class NoCase(Exception):
    """A row that cannot become a case, and why, in words that many rows share."""


Reader = Callable[[Row], Case]
"""Makes a case of a row; raises :class:`NoCase`."""


def rows(path: Path) -> Iterator[Row]:
    """Returns the rows of a CSV file with a head line, plain or .gz, in the order of the file."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    reader = csv.DictReader(io.StringIO(content.decode(), newline=""))
    for values in reader:
        yield Row(values, f"{path.name}:{reader.line_num}")


def cases(path: Path, read: Reader) -> list[Case]:
    """Returns the cases of all rows that become one."""
    found = []
    for row in rows(path):
        try:
            found.append(read(row))
        except NoCase:
            continue
    return found


def dropped(path: Path, read: Reader) -> dict[str, int]:
    """Returns reason -> number of the rows that become no case."""
    reasons: Counter[str] = Counter()
    for row in rows(path):
        try:
            read(row)
        except NoCase as reason:
            reasons[str(reason)] += 1
    return dict(reasons)


def looked_up(names: Mapping[str, str], asked: str, kind: str) -> str:
    """Returns what the set's name means here; :class:`NoCase` where nothing does."""
    if asked not in names:
        raise NoCase(f"no card for the {kind} {asked}")
    return names[asked]


def room_for(model: str, tokens: int) -> int | None:
    """Returns ``max_model_len`` for requests of ``tokens``; None beyond what the model declares,
    where simulations give the room that is needed. :class:`NoCase` for an unknown model."""
    if model not in list_models():
        raise NoCase(f"no card for the model {model}")
    return tokens if tokens <= get_model(model).max_position_embeddings else None


def group_of(deployment: Deployment) -> str:
    """Returns what is held out together: a model on a GPU under a backend."""
    return f"{deployment.gpu} {deployment.backend} {deployment.model}"
