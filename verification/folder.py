"""The ``verification`` folder of a run: one process at a time, every measurement kept at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dynosim.accuracy.calibrate import Calibrated, about_fit, write_document
from dynosim.hardware_models.errors import UserError
from dynosim.search.run_folder import RunFolder
from dynosim.verification.load.measured import read_observed, write_observed
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.observed import ObservedRun
from dynosim.verification.schedule import Turn

NAME = "verification"
CALIBRATION = "calibration.yaml"
_IDENTITY, _RUNS, _LOGS = "identity.json", "runs", "logs"
_RESULTS = (
    "verification.json",
    "verification.html",
    "overlay.png",
    "overlay.svg",
    CALIBRATION,
)


class VerificationFolder:
    """Keeps what was observed, a file a measurement; a context manager that holds its lock.

    ``identity`` is what measurements must have in common to stand side by side: the run, the load,
    the target; None where nothing is to be measured. UserError where the folder holds measurements
    and neither ``resume`` nor ``overwrite`` is asked for, or those of another identity, where both
    are asked for, where another process holds the folder, and where it cannot be written.
    """

    def __init__(
        self,
        run: Path,
        identity: Mapping[str, Any] | None,
        *,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        if resume and overwrite:
            raise UserError("--resume and --overwrite exclude each other")
        self.path = run / NAME
        self._resume, self._overwrite = resume, overwrite
        self._identity = None if identity is None else dict(identity)
        # Its own file list does not matter: what a search left is in the folder above.
        self._folder = RunFolder(self.path, resume=True)

    def __enter__(self) -> VerificationFolder:
        self._folder.__enter__()
        try:
            self._claim()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *ended: object) -> None:
        self._folder.__exit__(*ended)

    def _claim(self) -> None:
        if self._identity is None:
            return
        file = self.path / _IDENTITY
        held = sorted((self.path / _RUNS).glob("*.json"))
        if self._overwrite:
            for old in (*held, *(self.path / name for name in _RESULTS)):
                old.unlink(missing_ok=True)
            shutil.rmtree(self.path / _LOGS, ignore_errors=True)
        elif held and not self._resume:
            raise UserError(
                f"already holds {len(held)} measurement(s); nothing was changed",
                where=str(self.path),
                hint="go on with --resume, or replace them with --overwrite",
            )
        elif held and (found := _read(file)) != self._identity:
            differ = [k for k in self._identity if found.get(k) != self._identity[k]]
            raise UserError(
                f"holds measurements of another {', '.join(differ)}",
                where=str(self.path),
                hint="give what they were made with, or replace them with --overwrite",
            )
        self.write(_IDENTITY, as_json(self._identity))

    def logs(self, turn: Turn) -> Path:
        """Returns the folder for the logs of one measurement."""
        return self.path / _LOGS / turn.name

    def observed(self, turn: Turn) -> ObservedRun | None:
        """Returns what an earlier call observed; None where it did not come to it.

        Raises UserError for a file that holds no run.
        """
        file = self._file(turn)
        return read_observed(file) if file.is_file() else None

    def keep(self, turn: Turn, run: ObservedRun, plan: LoadPlan, model: str) -> None:
        """Writes one measurement; it is on disk, whole, when this returns.

        UserError where it cannot be written; those before it are safe.
        """
        file = self._file(turn)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_observed(file, run, plan, model=model)
        except OSError as error:
            hint = "what was measured before is safe: --resume goes on"
            message = f"cannot be written: {error.strerror}"
            raise UserError(message, where=str(file), hint=hint) from None

    def write(self, name: str, data: bytes) -> None:
        """Writes a file in one piece; UserError where it cannot be written."""
        self._folder.write(name, data)

    def write_with(self, name: str, writer: Callable[[Path], None]) -> None:
        """Lets ``writer`` write a file, which appears in one piece; UserError as :meth:`write`."""
        self._folder.write_with(name, writer)

    def write_calibration(self, calibrated: Calibrated, sources: Sequence[str]) -> None:
        """Writes fitted overheads as ``dynosim calibrate fit`` writes them; ``sources`` are the
        names of what they are fitted to."""
        about = about_fit(["dynosim", "verify"], sources)
        write_document(calibrated.document(about), self.calibration)

    @property
    def calibration(self) -> Path:
        """The file of overheads that are fitted to the measurements."""
        return self.path / CALIBRATION

    def _file(self, turn: Turn) -> Path:
        return self.path / _RUNS / f"{turn.name}.json"


def _read(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content


def as_json(value: Mapping[str, Any]) -> bytes:
    """Returns JSON as files have it, in UTF-8; ValueError for NaN and infinity, which have none."""
    return (json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()
