"""Which models a server has, and under which names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dynosim.hardware_models.errors import UserError
from dynosim.verification.load.answer import error_text
from dynosim.verification.load.bad_answer import BadAnswer
from dynosim.verification.load.completion import connection_error, read_at_most
from dynosim.verification.load.endpoint import Endpoint
from dynosim.verification.load.session import HEALTH, open_session
from dynosim.verification.load_plan import LoadPlan

if TYPE_CHECKING:
    import aiohttp

PATH = "/v1/models"
_TIMEOUT_S = 15.0
_MOST_BYTES = 4 << 20
_SHOWN = 8
_FORBIDDEN = (401, 403)
_ABSENT = (404, 405, 501)


@dataclass(frozen=True, kw_only=True)
class Served:
    """Model name -> the longest sequence in tokens where it is told; empty for no such list."""

    models: Mapping[str, int | None]

    def choose(self, asked: str | None, expected: str, endpoint: Endpoint) -> tuple[str, list[str]]:
        """Returns the name to ask for, and what a reader should know of it.

        ``asked`` is what the user says it is called, ``expected`` the candidate's model. Raises
        UserError for a name that the server does not have, and where it has several others.
        """
        name = asked or expected
        if not self.models or name in self.models:
            return name, []
        if asked is not None or len(self.models) > 1:
            shown = [endpoint.quote(model) for model in sorted(self.models)[:_SHOWN]]
            raise UserError(
                f"the server has no model {name!r}",
                where=endpoint.base_url,
                hint=f"it has: {', '.join(shown)}{', …' if len(self.models) > _SHOWN else ''}",
            )
        (only,) = self.models
        return only, [f"the server calls its model {endpoint.quote(only)}, the plan {expected}"]

    def check_room(self, model: str, plan: LoadPlan, endpoint: Endpoint) -> None:
        """Raises UserError for a request that is longer than the server takes."""
        longest = max(len(p) + n for p, n in zip(plan.prompts, plan.output_tokens, strict=True))
        room = self.models.get(model)
        if room is not None and longest > room:
            raise UserError(
                f"a request has {longest} tokens, the server takes {room} at most",
                where=endpoint.base_url,
                hint="start it with a larger --max-model-len, or send shorter requests",
            )


async def look(endpoint: Endpoint) -> Served:
    """Returns what a server has; UserError, saying what to do, where none answers as one should."""
    import aiohttp

    try:
        async with asyncio.timeout(_TIMEOUT_S), open_session(endpoint) as session:
            return await _models(session, endpoint)
    except TimeoutError:
        problem = f"no answer within {_TIMEOUT_S:g} s"
    except BadAnswer as bad:
        problem = str(bad)
    except (aiohttp.ClientError, OSError, ValueError) as failure:
        problem = connection_error(failure)
    raise UserError(
        endpoint.quote(problem),
        where=endpoint.base_url,
        hint="is an OpenAI-compatible server up there? For example: vllm serve MODEL --port 8000",
    )


async def _models(session: aiohttp.ClientSession, endpoint: Endpoint) -> Served:
    async with session.get(endpoint.url(PATH), allow_redirects=False) as response:
        if response.status in _ABSENT:
            await _check_health(session, endpoint)
            return Served(models={})
        content = await read_at_most(response, _MOST_BYTES)
        if response.status in _FORBIDDEN:
            raise BadAnswer(f"HTTP {response.status}: it wants an API key (--api-key-env VARIABLE)")
        if response.status != 200:
            said = content.decode(errors="replace").strip()
            raise BadAnswer(f"HTTP {response.status} {response.reason} from {PATH}: {said}")
    try:
        return _listed(json.loads(content))
    except (ValueError, RecursionError):
        kind = response.content_type
        raise BadAnswer(f"{PATH} is {kind} and no list of models") from None


async def _check_health(session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
    async with session.get(endpoint.url(HEALTH), allow_redirects=False) as response:
        if response.status != 200:
            raise BadAnswer(f"neither {PATH} nor {HEALTH} is there (HTTP {response.status})")


def _listed(document: Any) -> Served:
    """Returns the models of a list; ValueError for anything else."""
    rows = document.get("data") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise ValueError(error_text(document))
    found = {}
    for row in rows:
        if isinstance(row, dict) and isinstance(row.get("id"), str):
            room = row.get("max_model_len")
            found[row["id"]] = room if isinstance(room, int) else None
    return Served(models=found)
