"""Measurements that other tools made: their result files, told by trial."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dynosim.accuracy.result_file import read_results
from dynosim.accuracy.results.base import MeasuredRun, finite
from dynosim.hardware_models.errors import UserError
from dynosim.verification.choice import Pick
from dynosim.verification.load.same_load import check_same_load
from dynosim.verification.measured import Measured, metrics_of_run, with_derived
from dynosim.verification.prepared import Prepared

_TRIAL = re.compile(r"trial[-_]?0*(\d+)")
_HINT = "allowed: TRIAL=FILE, as in 12=bench.json, or a path with trial-12 in it"


def trials_of(words: Sequence[str]) -> dict[int, list[Path]]:
    """Returns the files of each trial, in the order given.

    A word is ``TRIAL=FILE``, or a path that names its trial as ``--write`` does (``trial-0012``,
    the last such part counts). UserError for any other.
    """
    found: dict[int, list[Path]] = {}
    for word in words:
        number, is_told, path = word.partition("=")
        if is_told and number.isdecimal():
            found.setdefault(int(number), []).append(Path(path))
            continue
        numbers = _TRIAL.findall(word)
        if not numbers:
            raise UserError(f"which trial is {word!r} of?", where="--results", hint=_HINT)
        found.setdefault(int(numbers[-1]), []).append(Path(word))
    return found


def measured_from(prepared: Prepared, files: Mapping[int, Sequence[Path]]) -> list[Measured]:
    """Returns what files measured of the picks, a repeat a file (or a run of it).

    Raises UserError for a load that is not the run's.
    """
    return [_measured(prepared, pick, files[pick.number]) for pick in prepared.picks]


def _measured(prepared: Prepared, pick: Pick, files: Sequence[Path]) -> Measured:
    runs = [run for file in files for run in _same_load(prepared, file)]
    model = prepared.candidate(pick).model
    notes = [
        f"{run.where} is of the model {run.model}, the trial of {model}"
        for run in runs
        if run.model is not None and not _is_same_model(run.model, model)
    ]
    notes += [f"{run.where}: {run.failed} request(s) failed" for run in runs if run.failed]
    return Measured(
        pick=pick,
        repeats=tuple(with_derived(metrics_of_run(run), pick.trial) for run in runs),
        notes=tuple(notes),
    )


def _same_load(prepared: Prepared, file: Path) -> list[MeasuredRun]:
    """Returns the runs of a file that had the planned load; of a sweep, some may."""
    rate = finite(prepared.spec.request_rate)
    kept, refused = [], []
    for run in read_results(file):
        try:
            check_same_load(prepared.load, run, request_rate=rate)
        except UserError as error:
            refused.append(error)
        else:
            kept.append(run)
    if not kept and refused:
        raise refused[0]
    return kept


def _is_same_model(found: str, expected: str) -> bool:
    return found.rstrip("/").rpartition("/")[2].casefold() == expected.rpartition("/")[2].casefold()
