"""A journal that is written and not read back: Optuna would keep every trial in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.storages.journal import BaseJournalBackend


def append_only(backend: BaseJournalBackend) -> Any:
    """Returns a backend of Optuna's journal storage that reads nothing once it ``forgets``."""
    from optuna.storages.journal import BaseJournalBackend

    class AppendOnly(BaseJournalBackend):
        forgets = False

        def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
            return [] if self.forgets else backend.read_logs(log_number_from)

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            backend.append_logs(logs)

    return AppendOnly()
