"""What "a user" may mean, and how many of each kind one and the same load is.

Three meanings are in use: a request in flight (``--concurrency`` of benchmarks: somebody who always
waits for an answer), a request per second, and a person who reads for a while before asking again.
With throughput X (requests/s), mean stay R (s) and think time Z (s), Little's law makes X·R in
flight and X·(R + Z) people of them (the interactive response-time law; Lazowska et al.,
"Quantitative System Performance", 1984).
"""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.planning.load import Load

DEFAULT_THINK_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Users:
    """The same load counted three ways; ``think_s`` is what the third supposes."""

    in_flight: float
    requests_s: float
    clients: float
    think_s: float

    def rows(self) -> tuple[tuple[str, str], ...]:
        """Returns (count, what is counted) for people to read."""
        return (
            (f"{self.in_flight:,.1f}", "requests in flight (sessions that always wait)"),
            (f"{self.requests_s:,.2f}", "requests per second"),
            (f"{self.clients:,.0f}", f"clients who think {self.think_s:g} s between requests"),
        )


def users_of(load: Load, mean_e2el_s: float, think_s: float) -> Users:
    """Returns the counts of a load whose requests stay for ``mean_e2el_s`` in the mean."""
    is_rate = load.kind == "rate"
    requests_s = load.size if is_rate else load.size / mean_e2el_s
    return Users(
        in_flight=requests_s * mean_e2el_s,
        requests_s=requests_s,
        clients=requests_s * (mean_e2el_s + think_s),
        think_s=think_s,
    )
