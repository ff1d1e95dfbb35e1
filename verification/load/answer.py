"""The answer to one request: which tokens came when, by what the server's events say."""

from __future__ import annotations

import json
from typing import Any

from dynosim.verification.load.bad_answer import BadAnswer

DONE = b"[DONE]"
_NAMED_TOKENS = ("tokens", "content")
"""Where completions, and chats, list the tokens of a chunk's ``logprobs``."""


class Answer:
    """Counts the ``asked`` tokens of a completion as its events come.

    An event says how many tokens it holds by a running ``usage``, by ``token_ids`` or by
    ``logprobs``; without any of them it counts as one, and the final usage tells how many there
    were in all. Servers that speculate send several at once.
    """

    def __init__(self, asked: int) -> None:
        self.asked = asked
        self.token_s: list[float] = []
        self.input_tokens: int | None = None
        self.is_over = False
        self.is_guessed = False
        self._finish_reason: str | None = None
        self._total: int | None = None
        self._runs_along: bool | None = None

    def take(self, data: bytes, at_s: float) -> None:
        """Takes one event; BadAnswer for an error, for no JSON and for more than was asked for."""
        if data == DONE:
            self.is_over = True
            return
        event = _parsed(data)
        usage = event.get("usage")
        if isinstance(usage, dict):
            self._total = _count(usage, "completion_tokens", self._total)
            self.input_tokens = _count(usage, "prompt_tokens", self.input_tokens)
        choices = event.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            new = self._new_tokens(choices[0], isinstance(usage, dict))
            if len(self.token_s) + new > self.asked:
                raise BadAnswer(f"more than the {self.asked} tokens that were asked for")
            self.token_s += [at_s] * new

    def _new_tokens(self, choice: dict[str, Any], has_usage: bool) -> int:
        reason = choice.get("finish_reason")
        self._finish_reason = reason if isinstance(reason, str) else self._finish_reason
        if self._runs_along is None:
            self._runs_along = has_usage
        if self._runs_along and has_usage and self._total is not None:
            return max(self._total - len(self.token_s), 0)
        listed = choice.get("token_ids")
        if isinstance(listed, list):
            return len(listed)
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, dict):
            for name in _NAMED_TOKENS:
                if isinstance(listed := logprobs.get(name), list):
                    return len(listed)
        self.is_guessed = True
        return 1 if choice.get("text") or reason is None else 0

    def end(self) -> None:
        """Judges the whole answer; BadAnswer where it is not complete."""
        got = len(self.token_s)
        if self.is_guessed and self._total is not None and 0 < got < self._total <= self.asked:
            self._spread(self._total - got)
            got = self._total
        if not self.is_over and (got < self.asked or self._finish_reason is None):
            raise BadAnswer(f"hung up after {got} of {self.asked} tokens")
        if self._total is not None and self._total != got:
            raise BadAnswer(f"{got} tokens came, but its usage says {self._total}")
        if got != self.asked:
            raise BadAnswer(self._too_few(got))

    def _too_few(self, got: int) -> str:
        reason = self._finish_reason
        said = f" (finish_reason {reason})" if reason else ""
        why = "is its context long enough?" if reason == "length" else "does it know ignore_eos?"
        return f"{got} tokens{said}, {self.asked} were asked for: {why}"

    def _spread(self, more: int) -> None:
        """Gives tokens that no event spoke of to the events after the first, as even as can be.

        The first token comes out of the prompt's last step, alone.
        """
        first, *later = self.token_s
        events = later or [first]
        each, rest = divmod(more, len(events))
        counts = [1 + each + (i < rest) for i in range(len(events))]
        spread = [at_s for at_s, n in zip(events, counts, strict=True) for _ in range(n)]
        self.token_s = [first, *spread] if later else spread


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise BadAnswer(f"an event that is no JSON: {data[:80].decode(errors='replace')}") from None
    if not isinstance(event, dict):
        raise BadAnswer(f"an event that is no JSON object: {data[:80].decode(errors='replace')}")
    if event.get("error") is not None:
        raise BadAnswer(f"it reports an error: {error_text(event)}")
    return event


def error_text(document: Any) -> str:
    """Returns the words of an error as OpenAI's API, FastAPI and others wrap them."""
    for name in ("error", "message", "detail"):
        if isinstance(document, dict) and document.get(name):
            return error_text(document[name])
    return document if isinstance(document, str) else json.dumps(document)


def _count(usage: dict[str, Any], name: str, otherwise: int | None) -> int | None:
    found = usage.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else otherwise
