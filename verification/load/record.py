"""What came of the requests so far, and when it is too bad to go on."""

from __future__ import annotations

from dynosim.hardware_models.errors import UserError
from dynosim.verification.load.completion import Outcome
from dynosim.verification.load.limits import Limits
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.observed import ObservedRequest


class Record:
    """Keeps the outcomes of a plan's measured requests; ``where`` is the server's address."""

    def __init__(self, plan: LoadPlan, limits: Limits, where: str) -> None:
        self._plan = plan
        self._limits = limits
        self._where = where
        self._seen: dict[int, ObservedRequest] = {}
        self._failed: list[ObservedRequest] = []
        self._guessed = 0
        self._planned = len(plan) - plan.warmup

    def check_span(self) -> None:
        """Raises UserError for a plan that takes longer than the run may last."""
        most_s = self._limits.run_timeout_s
        last_s = self._plan.send_s[-1] if self._plan.send_s else 0.0
        if last_s > most_s:
            raise UserError(
                f"the last request is sent after {last_s:,.0f} s, the run may last {most_s:,.0f} s",
                where=self._where,
                hint="send fewer requests, or allow more time",
            )

    def add(self, number: int, planned_s: float, outcome: Outcome) -> None:
        """Takes what came of a request; UserError when more failed than may."""
        counted = outcome.input_tokens
        self._seen[number] = request = ObservedRequest(
            index=number,
            planned_s=planned_s,
            sent_s=outcome.sent_s,
            token_s=outcome.token_s,
            input_tokens=len(self._plan.prompts[number]) if counted is None else counted,
            error=outcome.error,
        )
        self._guessed += outcome.is_guessed
        if request.error is not None:
            self._failed.append(request)
            if len(self._failed) > self._limits.allowed_failures(self._planned):
                raise self._too_many()

    def requests(self) -> tuple[ObservedRequest, ...]:
        """Returns what was seen, in the plan's order."""
        return tuple(self._seen[number] for number in sorted(self._seen))

    def duration_s(self) -> float:
        """Returns the time from the first request that was answered to the last token."""
        answered = [r for r in self._seen.values() if r.error is None]
        return max(r.token_s[-1] for r in answered) - min(r.sent_s for r in answered)

    def notes(self) -> list[str]:
        """Returns what a reader should know."""
        found = []
        if self._guessed:
            found.append(
                f"{self._guessed} answers did not say how many tokens an event holds: each was "
                "counted as one, and what was missing was spread over them"
            )
        seen = self._seen.values()
        other = sum(len(self._plan.prompts[r.index]) != r.input_tokens for r in seen)
        if other:
            found.append(f"the server counted other prompt tokens than were sent: {other} requests")
        return found

    def _failures(self) -> str:
        first = min(self._failed, key=lambda request: request.sent_s)
        return (
            f"{len(self._failed)} of {self._planned} requests failed; the first, number "
            f"{first.index}, sent at {first.sent_s:.2f} s: {first.error}"
        )

    def _too_many(self) -> UserError:
        allowed = self._limits.allowed_failures(self._planned)
        return UserError(
            self._failures(), where=self._where, hint=f"allowed: {allowed}; none was sent again"
        )

    def too_long(self) -> UserError:
        """Returns the error of a run that is not over in time."""
        done = len(self._seen) - len(self._failed)
        return UserError(
            f"not over after {self._limits.run_timeout_s:g} s: {done} of {self._planned} requests "
            "were answered",
            where=self._where,
            hint="send fewer requests, or allow more time",
        )
