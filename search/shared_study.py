"""A study in PostgreSQL beside the run's own journal, for other hosts to watch or to go on with.

The journal stays the run's memory: a trial is on this machine's disk first, in the database then.
The study's name follows from what is searched, so that any host that is given the same space
finds it; one process at a time may search in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dynosim.hardware_models.errors import UserError
from dynosim.search.field_type import shown
from dynosim.search.metric import Direction
from dynosim.search.quiet_optuna import quiet_optuna

CONNECT_S = 10
SCHEMES = ("postgresql", "postgresql+psycopg")
T = TypeVar("T")


def check_storage(storage: str, has_folder: bool) -> None:
    """Raises UserError for what is neither ``journal`` nor a PostgreSQL URL with a folder."""
    if storage == "journal":
        return
    if storage.partition("://")[0] not in SCHEMES or "://" not in storage:
        hint = "allowed: journal, postgresql://USER@HOST/DATABASE"
        raise UserError(f"found {shown(without_password(storage))}", where="storage", hint=hint)
    if not has_folder:
        raise UserError(
            "needs an output folder: trials are kept there first",
            where="storage",
            hint="give --output-dir",
        )


class SharedStudy:
    """The study of one search in the database at ``url``, made if it is not there.

    ``identity`` is the digest of the space. ``progress`` says, for errors, what is safe. UserError
    where the database does not answer or another process searches in the study.
    """

    def __init__(
        self,
        url: str,
        identity: str,
        directions: Sequence[Direction],
        metrics: Sequence[str],
        progress: Callable[[], str],
    ) -> None:
        self.name = f"dynosim-{identity[:16]}"
        self._where = f"storage: {without_password(url)}"
        self._progress = progress
        self._storage = self._ask(lambda: _open(url, self._where))
        self._lock: Any = None
        try:
            self._lock = self._ask(lambda: _lock(self._storage.engine, identity))
            if self._lock is None:
                raise UserError(
                    f"another process is searching in the study {self.name}",
                    where=self._where,
                    hint="watch it with optuna-dashboard, or wait until it ends",
                )
            self._study = self._ask(lambda: self._make(directions, metrics))
        except UserError:
            self.close()
            raise

    def _make(self, directions: Sequence[Direction], metrics: Sequence[str]) -> Any:
        import optuna

        study = optuna.create_study(
            storage=self._storage,
            study_name=self.name,
            directions=list(directions),
            load_if_exists=True,
        )
        with quiet_optuna():
            study.set_metric_names(list(metrics))
        return study

    def trials(self) -> list[Any]:
        """Returns the study's finished trials, as Optuna has them."""
        found: list[Any] = self._ask(lambda: self._study.get_trials(deepcopy=False))
        return found

    def add(self, frozen: Any) -> None:
        """Adds a finished trial; it is in the database when this returns."""
        self._ask(lambda: self._study.add_trial(frozen))

    def close(self) -> None:
        """Lets another process have the study."""
        if self._lock is not None:
            # Without a word to the server, which may be down: the lock goes with the connection.
            self._lock.invalidate()
            self._lock.close()
        self._storage.remove_session()
        self._storage.engine.dispose()

    def _ask(self, question: Callable[[], T]) -> T:
        """Returns the database's answer; UserError where there is none."""
        from optuna.exceptions import StorageInternalError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with quiet_optuna():
                return question()
        except (StorageInternalError, SQLAlchemyError) as error:
            # Optuna wraps what the driver said.
            cause = error.__cause__ or error
            words = str(getattr(cause, "orig", None) or cause).strip().splitlines()
            raise UserError(
                f"the database does not answer: {words[0] if words else type(cause).__name__}",
                where=self._where,
                hint=self._progress(),
            ) from None


def _open(url: str, where: str) -> Any:
    from optuna.storages import RDBStorage

    name = f"postgresql+psycopg://{url.partition('://')[2]}"
    try:
        return RDBStorage(
            name,
            engine_kwargs={"connect_args": {"connect_timeout": CONNECT_S}, "pool_pre_ping": True},
        )
    except ImportError:
        raise UserError(
            "PostgreSQL needs psycopg", where=where, hint="pip install 'dynosim[postgres]'"
        ) from None


def _lock(engine: Any, identity: str) -> Any:
    """Returns a connection that holds the study's lock until it ends, None where another does."""
    from sqlalchemy import text

    key = int.from_bytes(bytes.fromhex(identity[:16]), signed=True)
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    query = text("SELECT pg_try_advisory_lock(:key)")
    if connection.execute(query, {"key": key}).scalar():
        return connection
    connection.close()
    return None


def without_password(url: str) -> str:
    """Returns a URL, or a command's argument with one in it, as it may be shown."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    user, at, host = rest.rpartition("@")
    return f"{scheme}{mark}{user.partition(':')[0]}{at}{host.partition('?')[0]}"
