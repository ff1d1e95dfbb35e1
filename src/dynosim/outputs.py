"""Files that a command is asked to write, checked before it computes anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dynosim.hardware_models.errors import UserError


def check_writable(files: Mapping[str, Path | None]) -> None:
    """Raises UserError for a flag whose file could not be written; changes nothing."""
    for flag, path in files.items():
        if path is None:
            continue
        if path.is_dir():
            raise UserError(f"{path} is a folder", where=flag, hint="allowed: a file's name")
        if not path.parent.is_dir():
            hint = f"make it first: mkdir -p {path.parent}"
            raise UserError(f"there is no folder {path.parent}", where=flag, hint=hint)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UserError(f"{path} cannot be written", where=flag)
