"""An engine that is already up, at an address: one candidate, whose settings are taken on trust."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Candidate
from dynosim.verification.load.client import measure_load
from dynosim.verification.load.endpoint import Endpoint
from dynosim.verification.load.limits import Limits
from dynosim.verification.load.served import Served, look
from dynosim.verification.load.session import check_installed, run_async
from dynosim.verification.load_plan import LoadPlan
from dynosim.verification.observed import ObservedRun
from dynosim.verification.target import Running, Target, TargetOptions


def make(options: TargetOptions) -> Target:
    """Returns the target at ``options.url``."""
    return Url(options)


class Url:
    """A server with OpenAI's interface; nothing is started and nothing stopped."""

    def __init__(self, options: TargetOptions) -> None:
        if options.url is None:
            raise UserError(
                "where is the engine?", where="--url", hint="for example http://localhost:8000"
            )
        self._endpoint = Endpoint.at(
            options.url, api_key_env=options.api_key_env, header_env=options.header_env
        )
        self._model = options.model
        self._limits = Limits(
            request_timeout_s=options.request_timeout_s, run_timeout_s=options.run_timeout_s
        )

    @contextmanager
    def run(self, candidate: Candidate) -> Iterator[Running]:
        """Yields the server as it is; UserError where none answers or it has no such model."""
        check_installed()
        served = run_async(look(self._endpoint))
        model, notes = served.choose(self._model, candidate.model, self._endpoint)
        yield _Client(self._endpoint, model, served, self._limits, tuple(notes))


@dataclass(frozen=True)
class _Client:
    """Sends load to a server under the name that it calls the model by."""

    endpoint: Endpoint
    model: str
    served: Served
    limits: Limits
    notes: tuple[str, ...]

    def measure(self, plan: LoadPlan) -> ObservedRun:
        self.served.check_room(self.model, plan, self.endpoint)
        seen = measure_load(self.endpoint, self.model, plan, self.limits)
        return replace(seen, notes=(*self.notes, *seen.notes))
