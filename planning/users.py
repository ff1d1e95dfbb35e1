"""What "a user" may mean, and how many of each kind one and the same load is.

Three meanings are in use: a request in flight (``--concurrency`` of benchmarks: somebody who always
waits for an answer), a request per second, and a person who reads for a while before asking again.
With throughput X (requests/s), mean stay R (s) and think time Z (s), Little's law makes X·R in
flight and X·(R + Z) people of them (the interactive response-time law; Lazowska et al.,
"Quantitative System Performance", 1984).
"""

from __future__ import annotations

from dataclasses import dataclass

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


def users_of(request_throughput: float, mean_e2el_s: float, think_s: float) -> Users:
    """Returns the counts of a load with this throughput (requests/s) and mean stay (s)."""
    return Users(
        in_flight=request_throughput * mean_e2el_s,
        requests_s=request_throughput,
        clients=request_throughput * (mean_e2el_s + think_s),
        think_s=think_s,
    )
