"""Finished trials on disk: an Optuna study in a journal file, one durable append a trial.

Optuna Dashboard opens the same file. What a resumed search needs stands in each trial's user
attributes: the deployment and its outcome, from which everything else is computed again.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynosim.hardware_models.errors import UserError
from dynosim.search.append_only import append_only
from dynosim.search.dimension import Dimension
from dynosim.search.objective import Objective
from dynosim.search.outcome import Outcome
from dynosim.search.quiet_optuna import quiet_optuna
from dynosim.search.trial import Trial
from dynosim.sim.deployment import Deployment

if TYPE_CHECKING:
    from dynosim.search.shared_study import SharedStudy

STUDY_NAME = "dynosim"


class Ledger:
    """Returns outcomes that an earlier run left, and appends finished trials.

    Exactly one process may have a ledger open (:class:`dynosim.search.run_folder.RunFolder`
    sees to that). ``identity`` is the digest of the space: a journal of another one is refused.
    With a ``storage`` other than ``journal`` the trials are in that database too
    (:mod:`dynosim.search.shared_study`), and what others have put there is in the journal.
    """

    def __init__(
        self,
        path: Path,
        dimensions: Iterable[Dimension],
        objectives: tuple[Objective, ...],
        identity: str,
        storage: str = "journal",
    ) -> None:
        import optuna
        from optuna.distributions import CategoricalDistribution
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

        _mend(path)
        self._choices = {
            d.name: CategoricalDistribution(d.values) for d in dimensions if len(d) > 1
        }
        self._objectives, self._path = objectives, path
        with quiet_optuna():
            self._file = append_only(JournalFileBackend(str(path), JournalFileOpenLock(str(path))))
            self._study = optuna.create_study(
                storage=JournalStorage(self._file),
                study_name=STUDY_NAME,
                directions=[o.direction for o in objectives],
                load_if_exists=True,
            )
            self._claim(path, identity)
            self._study.set_metric_names([o.metric for o in objectives])
        self._outcomes = dict(map(_read, self._study.get_trials(deepcopy=False)))
        self._held: set[Deployment] = set(self._outcomes)
        self._shared: SharedStudy | None = None
        if storage != "journal":
            self._shared = self._share(storage, identity)
        self._held |= self._outcomes.keys()

    def _share(self, storage: str, identity: str) -> SharedStudy:
        """Returns the study in the database, after both have all trials of either."""
        from dynosim.search.shared_study import SharedStudy

        directions = [o.direction for o in self._objectives]
        metrics = [o.metric for o in self._objectives]
        shared = SharedStudy(storage, identity, directions, metrics, self._progress)
        theirs = {_read(frozen)[0]: frozen for frozen in shared.trials()}
        ours = {_read(frozen)[0]: frozen for frozen in self._study.get_trials(deepcopy=False)}
        for deployment, frozen in theirs.items():
            if deployment not in ours:
                self._study.add_trial(frozen)
                self._outcomes[deployment] = _read(frozen)[1]
        for deployment, frozen in ours.items():
            if deployment not in theirs:
                shared.add(frozen)
        return shared

    def close(self) -> None:
        """Lets go of the database, if there is one."""
        if self._shared is not None:
            self._shared.close()

    def holds(self, deployment: Deployment) -> bool:
        """Whether a trial is on disk."""
        return deployment in self._held

    def take(self, deployment: Deployment) -> Outcome | None:
        """Returns what an earlier run left of a deployment, once: it is not needed twice."""
        return self._outcomes.pop(deployment, None)

    def _progress(self) -> str:
        return f"{len(self._held)} trials are safe: continue with --resume"

    def _claim(self, path: Path, identity: str) -> None:
        found = self._study.user_attrs.get("space_sha256")
        if found is None:
            self._study.set_user_attr("space_sha256", identity)
        elif found != identity:
            raise UserError(
                "holds the run of another space, workload or seed",
                where=str(path),
                hint="give what it was started with, or another output folder",
            )

    def record(self, trial: Trial, outcome: Outcome) -> None:
        """Appends a finished trial; it is on disk when this returns. UserError where it is not."""
        frozen = self._frozen(trial, outcome)
        try:
            self._study.add_trial(frozen)
        except OSError as error:
            raise UserError(
                f"cannot be written: {error.strerror}",
                where=f"{self._path}, trial {trial.number}",
                hint=self._progress(),
            ) from None
        self._file.forgets = True  # Optuna reads the first one back to learn its own place.
        self._held.add(trial.deployment)
        if self._shared is not None:
            self._shared.add(frozen)

    def _frozen(self, trial: Trial, outcome: Outcome) -> Any:
        """Returns a trial as Optuna has it."""
        import optuna

        deployment = asdict(trial.deployment)
        values = trial.values(self._objectives)
        has_values = all(math.isfinite(v) for v in values)
        # A field whose condition does not hold is at its default, which need not be a choice.
        searched: dict[str, Any] = {
            name: choice
            for name, choice in self._choices.items()
            if deployment[name] in choice.choices
        }
        return optuna.trial.create_trial(
            state=_state(trial, has_values),
            values=values if has_values else None,
            params={name: deployment[name] for name in searched},
            distributions=searched,
            user_attrs={
                "number": trial.number,
                "reason": trial.reason,
                "detail": trial.detail,
                "deployment": deployment,
                "outcome": asdict(outcome),
            },
            constraints=dict(trial.violations),
        )


def read_trials(path: Path) -> list[tuple[int, Deployment, Outcome]]:
    """Returns number, deployment and outcome of each trial of a journal, by number.

    Nothing is written, also where another process is searching. UserError where it does not read.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    if not path.is_file():
        raise UserError("no such file", where=str(path))
    try:
        with quiet_optuna():
            storage = JournalStorage(JournalFileBackend(str(path)))
            study = optuna.load_study(study_name=STUDY_NAME, storage=storage)
            found = study.get_trials(deepcopy=False)
    except (KeyError, ValueError) as error:
        raise UserError(f"holds no study ({error})", where=str(path)) from None
    rows = [(int(trial.user_attrs["number"]), *_read(trial)) for trial in found]
    return sorted(rows, key=lambda row: row[0])


def _state(trial: Trial, has_values: bool) -> Any:
    from optuna.trial import TrialState

    if has_values:
        return TrialState.COMPLETE
    return TrialState.FAIL if trial.reason == "error" else TrialState.PRUNED


def _read(frozen: Any) -> tuple[Deployment, Outcome]:
    attrs: Mapping[str, Any] = frozen.user_attrs
    outcome = Outcome(**attrs["outcome"])
    # JSON has lists only.
    return Deployment(**attrs["deployment"]), replace(outcome, warnings=tuple(outcome.warnings))


def _mend(path: Path) -> None:
    """Removes half a last line and the lock, as a killed owner leaves them, and damaged lines.

    A line is a trial, or belongs to the study's head; trials that are lost are simulated again.
    """
    Path(f"{path}.lock").unlink(missing_ok=True)
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(sum(map(len, lines[:-1])))
        lines.pop()
    kept = [line for line in lines if _reads(line)]
    lost = len(lines) - len(kept)
    if lost:
        path.with_name(f"{path.name}.damaged").write_bytes(b"".join(lines))
        partial = path.with_name(f".{path.name}.partial")
        partial.write_bytes(b"".join(kept))
        os.replace(partial, path)
        warnings.warn(
            f"{path}: {lost} line(s) do not read; kept as {path.name}.damaged, and trials that "
            "are missing are simulated again",
            stacklevel=2,
        )


def _reads(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
