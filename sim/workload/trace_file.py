"""A trace file as text, plain or gzipped, with the line numbers that errors name."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dynosim.hardware_models.errors import UserError

GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class TraceFile:
    """The text of one trace; ``path`` as the user wrote it."""

    path: str
    text: str

    @property
    def head(self) -> str:
        """The first line that is not blank, without blanks around it."""
        return self.text.lstrip().partition("\n")[0].rstrip()

    @cached_property
    def lines(self) -> list[str]:
        """The lines that are not blank, without line ends."""
        return [line for line in self._all_lines if line and not line.isspace()]

    @property
    def _all_lines(self) -> list[str]:
        # Not str.splitlines: it also splits at separators that may stand inside a JSON string.
        return self.text.replace("\r\n", "\n").split("\n")

    def where(self, index: int) -> str:
        """Returns ``file:line`` of ``lines[index]``."""
        numbers = (n for n, s in enumerate(self._all_lines, 1) if s and not s.isspace())
        return f"{self.path}:{next(n for i, n in enumerate(numbers) if i == index)}"


def open_trace_file(path: str | Path) -> TraceFile:
    """Returns the text of ``path``, unpacked if gzipped.

    Raises ``UserError`` where it is missing, a folder, unreadable, not text, or empty.
    """
    data = _read_bytes(Path(path).expanduser())
    if data[:2] == GZIP_MAGIC:
        data = _gunzip(data, str(path))
    text = _decode(data, str(path))
    if not text or text.isspace():
        raise UserError("the file is empty", where=str(path), hint="allowed: a trace with rows")
    return TraceFile(str(path), text)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise _unreadable(path, "no such file", _neighbours(path)) from None
    except IsADirectoryError:
        raise _unreadable(path, "is a folder") from None
    except OSError as error:
        folder = path.is_dir()  # Windows reports a folder as a permission error.
        raise _unreadable(path, "is a folder" if folder else str(error.strerror)) from None


def _unreadable(path: Path, why: str, hint: str = "") -> UserError:
    return UserError(why, where=str(path), hint=hint or "allowed: a trace file, plain or .gz")


def _neighbours(path: Path) -> str:
    import difflib

    try:
        names = [p.name for p in path.parent.iterdir() if p.is_file()]
    except OSError:
        return f"no such folder either: {path.parent}"
    near = difflib.get_close_matches(path.name, names, n=3)
    return f"nearest in {path.parent}: {', '.join(near)}" if near else ""


def _gunzip(data: bytes, path: str) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"damaged gzip file ({error})", where=path) from None


def _decode(data: bytes, path: str) -> str:
    try:
        if b"\0" not in data[:65536]:
            return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    hint = "allowed: UTF-8 text (JSON lines or CSV), plain or gzipped"
    raise UserError("not a text file", where=path, hint=hint)
