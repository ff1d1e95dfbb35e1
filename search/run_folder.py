"""The folder of one run: owned by one process at a time, never overwritten unasked."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO

from dynosim.hardware_models.errors import UserError

JOURNAL = "study.journal"
FILES = (
    "frontier.csv",
    "trials.csv",
    "trials.parquet",
    "frontier.png",
    "frontier.svg",
    "report.html",
    "failures.txt",
    "manifest.json",
    "run.json",
    JOURNAL,
)
CANDIDATES = "candidates"
_LOCK = ".dynosim.lock"


class RunFolder:
    """Returns a place to write results to; a context manager that holds the folder's lock.

    UserError where the folder holds a run and neither ``resume`` nor ``overwrite`` is asked for,
    where another process is writing to it, or where it cannot be written.
    """

    def __init__(self, path: Path, *, resume: bool = False, overwrite: bool = False) -> None:
        if resume and overwrite:
            raise UserError("resume and overwrite exclude each other", where="output_dir")
        self.path, self._resume, self._overwrite = path, resume, overwrite
        self._lock: IO[bytes] | None = None

    @property
    def journal(self) -> Path:
        """The file of the study."""
        return self.path / JOURNAL

    def __enter__(self) -> RunFolder:
        try:
            self._refuse_to_overwrite()
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / _LOCK).open("wb")
        except OSError as error:
            raise UserError(
                f"cannot be written: {error.strerror}", where=f"output_dir: {self.path}"
            ) from None
        if not _try_lock(self._lock):
            self._lock.close()
            raise UserError(
                "another process is writing to this folder", where=f"output_dir: {self.path}"
            )
        if self._overwrite:
            self._clear()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._lock is not None:
            # Unlinked while still locked: whoever opens it later gets a file of its own.
            with contextlib.suppress(OSError):
                (self.path / _LOCK).unlink()
            self._lock.close()

    def _refuse_to_overwrite(self) -> None:
        found = [name for name in (*FILES, CANDIDATES) if (self.path / name).exists()]
        if found and not (self._resume or self._overwrite):
            raise UserError(
                f"already holds a run ({', '.join(found)}); nothing was changed",
                where=f"output_dir: {self.path}",
                hint="continue it with --resume, replace it with --overwrite, or name another",
            )

    def _clear(self) -> None:
        for name in FILES:
            (self.path / name).unlink(missing_ok=True)
        self.clear_candidates()

    def clear_candidates(self) -> None:
        """Removes the candidates' files of an earlier state of the run."""
        folder = self.path / CANDIDATES
        for file in folder.glob("[0-9]*.yaml"):
            file.unlink()

    def write(self, name: str, data: bytes) -> None:
        """Writes a file in one piece: a reader sees the old or the new content, never half."""

        def write(path: Path) -> None:
            path.write_bytes(data)

        self.write_with(name, write)

    def write_with(self, name: str, writer: Callable[[Path], None]) -> None:
        """Lets ``writer`` write a file under another name, then puts it in place."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.stem}.partial{target.suffix}")
        try:
            writer(partial)
            os.replace(partial, target)
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror}", where=str(target)) from None
        finally:
            partial.unlink(missing_ok=True)


def _try_lock(file: IO[bytes]) -> bool:
    """Whether this process now owns the open file; the system lets go when the process ends."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
