"""The append-only record of a measurement: one JSON line a finished shape."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.measure.case import Case, Outcome, Skipped, Timing
from dynosim.hardware_models.measure.families import KEYS

FORMAT = "dynosim-measure-1"


@dataclass(eq=False)
class Ledger:
    """What a measurement has found so far; :meth:`open` reads the file and takes it up again.

    ``origin`` is what the seconds depend on (device, driver, libraries, launch); ``states`` are
    clocks and temperatures met, ``probes`` the seconds of one fixed shape over the run.
    """

    path: Path
    origin: dict[str, Any]
    outcomes: dict[Case, Outcome] = field(default_factory=dict)
    states: list[dict[str, Any]] = field(default_factory=list)
    probes: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Returns a finished or broken-off ledger; UserError where the file is none."""
        lines = list(_lines(path))
        if not lines or lines[0].get("format") != FORMAT:
            raise UserError("not a ledger of `dynosim calibrate measure`", where=str(path))
        ledger = cls(path, lines[0]["origin"])
        for line in lines[1:]:
            ledger._take(line)
        return ledger

    @classmethod
    def open(cls, path: Path, origin: dict[str, Any]) -> Ledger:
        """Returns the ledger at ``path``, ready to append: a new one, or the one begun there.

        Raises UserError where the one begun there is of another device, driver or library.
        """
        if path.exists() and any(_lines(path)):
            ledger = cls.read(path)
            _check_same(ledger.origin, origin, path)
        else:
            ledger = cls(path, origin)
        if not _trimmed_bytes(path):
            ledger._append({"format": FORMAT, "origin": origin})
        return ledger

    def record(self, case: Case, outcome: Outcome) -> None:
        """Appends what came of a shape; once it returns, a killed process loses nothing of it."""
        self.outcomes[case] = outcome
        kind = "timing" if isinstance(outcome, Timing) else "skipped"
        self._append({"family": case.family, "key": case.key, kind: asdict(outcome)})

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        """Appends a device ``state`` or a ``probe``."""
        getattr(self, f"{kind}s").append(fields)
        self._append({kind: fields})

    def timings(self, family: str) -> dict[Case, Timing]:
        """Returns the measured shapes of a family."""
        found = self.outcomes.items()
        return {c: t for c, t in found if c.family == family and isinstance(t, Timing)}

    def skips(self) -> dict[Case, str]:
        """Returns the shapes that could not be measured, and why."""
        return {c: o.reason for c, o in self.outcomes.items() if isinstance(o, Skipped)}

    def _append(self, line: dict[str, Any]) -> None:
        with self.path.open("ab") as file:
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _take(self, line: dict[str, Any]) -> None:
        for kind in ("state", "probe"):
            if kind in line:
                getattr(self, f"{kind}s").append(line[kind])
                return
        if line["family"] not in KEYS:
            return
        case = Case.of(line["family"], line["key"])
        found = line.get("timing")
        self.outcomes[case] = Timing(**found) if found else Skipped(**line["skipped"])


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the whole lines; a last one without its end was being written when all stopped."""
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            found = json.loads(line)
        except ValueError as error:
            raise UserError(f"not JSON: {error}", where=f"{path}:{number}") from error
        if not isinstance(found, dict):
            raise UserError("expected a JSON object", where=f"{path}:{number}")
        yield found


def _trimmed_bytes(path: Path) -> int:
    """Cuts the file behind its last whole line; returns its size."""
    with path.open("ab+") as file:
        file.seek(0)
        return file.truncate(file.read().rfind(b"\n") + 1)


def _check_same(found: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    for name in sorted({*found, *wanted}):
        if found.get(name) != wanted.get(name):
            raise UserError(
                f"begun with {name} {found.get(name)!r}, but this is {wanted.get(name)!r}",
                where=str(path),
                hint="measure into another folder (--out), or remove this one to start afresh",
            )
