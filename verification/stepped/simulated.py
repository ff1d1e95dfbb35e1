"""The simulator's engine, driven step by step like a real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynosim.sim.engine.engine import Engine
from dynosim.sim.engine.limits import EngineLimits
from dynosim.sim.engine.sequence import Sequence as Simulated
from dynosim.sim.engine.timing import Timer
from dynosim.verification.stepped.engine import EngineStep, Work


class SimulatedEngine:
    """Forms the batches that the simulator forms; ``own_s`` of a step is what ``timer`` says.

    ``num_blocks`` are the KV blocks that requests can hold. Prefixes are told by their tokens.
    Fed with the costs of a real engine's steps (:class:`~.clocks.Replayed`), it shows whether the
    simulator schedules as that engine does.
    """

    def __init__(self, timer: Timer, limits: EngineLimits, num_blocks: int) -> None:
        assert limits.max_run == 1, "an engine that leaps takes many steps at once"
        assert not limits.async_scheduling, "steps are seen one by one, not one ahead"
        self._engine = Engine(timer, limits, num_blocks)
        self._block_size = limits.block_size
        self._num_blocks = num_blocks
        self._units: dict[tuple[int, tuple[int, ...]], int] = {}
        self._emitted: dict[int, int] = {}
        self._now_s = 0.0

    def add(self, request_id: int, prompt_token_ids: Sequence[int], max_tokens: int) -> None:
        """Queues a request."""
        units = self._prefix_units(prompt_token_ids)
        seq = Simulated(request_id, len(prompt_token_ids), max_tokens, units)
        self._emitted[request_id] = 0
        self._engine.enqueue(seq, self._now_s)

    def _prefix_units(self, prompt: Sequence[int]) -> list[int]:
        """Returns the identities of a prompt's full blocks: alike where all before is alike."""
        units: list[int] = []
        size = self._block_size
        for start in range(0, len(prompt) - size + 1, size):
            key = (units[-1] if units else -1, tuple(prompt[start : start + size]))
            units.append(self._units.setdefault(key, len(self._units)))
        return units

    def step(self) -> EngineStep:
        """Runs one step of the simulator."""
        engine = self._engine
        before = {seq: seq.preemptions for seq in engine.running}
        end_s = engine.begin(self._now_s)
        preempted = tuple(seq.index for seq, n in before.items() if seq.preemptions > n)
        if end_s is None:
            return EngineStep(work=(), new_tokens={}, preempted=preempted, own_s=0.0)
        work = tuple(self._work(seq, tokens) for seq, tokens in engine.batch())
        own_s = engine.run[0]
        batch = [seq for seq, _ in engine.batch()]
        finished = tuple(seq.index for seq in engine.end())
        self._now_s = end_s
        return EngineStep(
            work=work,
            new_tokens=self._given(batch, work),
            finished=finished,
            preempted=preempted,
            own_s=own_s,
        )

    def _work(self, seq: Simulated, tokens: int) -> Work:
        known = seq.prompt_tokens + self._emitted[seq.index]
        return Work(seq.index, tokens, known - 1 if seq.is_decoding else seq.computed)

    def _given(self, batch: Sequence[Simulated], work: Sequence[Work]) -> dict[int, int]:
        """Returns a token for everyone all of whose tokens are computed now."""
        given = {}
        for seq, done in zip(batch, work, strict=True):
            known = seq.prompt_tokens + self._emitted[seq.index]
            if done.context_tokens + done.tokens == known:
                self._emitted[seq.index] += 1
                given[seq.index] = 1
        return given

    def forget(self) -> None:
        """Empties the prefix cache."""
        if self._engine.begin(self._now_s) is not None:
            raise AssertionError("requests are unfinished")
        self._engine.kv.flush()

    def facts(self) -> Mapping[str, float | str]:
        """Returns the size of the KV cache."""
        return {"kv_cache_tokens": self._num_blocks * self._block_size}
