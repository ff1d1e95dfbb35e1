"""An engine simple enough to check by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynosim.verification.stepped.engine import EngineStep, Work


class ScriptedEngine:
    """Computes whole prompts at once and one token of every other request; ``width`` at a time.

    A step takes one second, and one more for every prompt in it.
    """

    def __init__(self, width: int = 8) -> None:
        self.width = width
        self.forgotten = 0
        self._waiting: list[int] = []
        self._running: list[int] = []
        self._known: dict[int, int] = {}
        self._left: dict[int, int] = {}

    def add(self, request_id: int, prompt_token_ids: Sequence[int], max_tokens: int) -> None:
        self._waiting.append(request_id)
        self._known[request_id] = len(prompt_token_ids)
        self._left[request_id] = max_tokens

    def step(self) -> EngineStep:
        decodes = list(self._running)
        entering = self._waiting[: self.width - len(decodes)]
        del self._waiting[: len(entering)]
        work = [Work(i, 1, self._known[i] - 1) for i in decodes]
        work += [Work(i, self._known[i], 0) for i in entering]
        self._running += entering
        for i in self._running:
            self._known[i] += 1
            self._left[i] -= 1
        finished = tuple(i for i in self._running if not self._left[i])
        given = dict.fromkeys(self._running, 1)
        self._running = [i for i in self._running if self._left[i]]
        seconds = 1.0 + len(entering)
        return EngineStep(work=tuple(work), new_tokens=given, finished=finished, own_s=seconds)

    def forget(self) -> None:
        self.forgotten += 1

    def facts(self) -> Mapping[str, float | str]:
        return {"kv_cache_tokens": 1024}
