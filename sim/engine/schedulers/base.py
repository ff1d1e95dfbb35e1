"""What the engine asks of a scheduler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Protocol

from dynosim.sim.engine.cache_watcher import CacheWatcher
from dynosim.sim.engine.decode_set import DecodeSet
from dynosim.sim.engine.sequence import Sequence
from dynosim.sim.engine.step_log import StepLog


class WaitingQueue(Protocol):
    """Requests that have arrived and not entered; a deque is one."""

    def append(self, seq: Sequence, /) -> None:
        """Adds a request that has just arrived."""
        ...

    def remove(self, seq: Sequence, /) -> None:
        """Takes out a request that is in the queue; ValueError if it is not."""
        ...

    def __len__(self) -> int: ...


class BlockPool(Protocol):
    """A replica's KV blocks."""

    num_blocks: int
    free_blocks: int
    watcher: CacheWatcher | None

    @property
    def used_blocks(self) -> int:
        """Blocks that requests hold now."""
        ...

    def take_steps(self, decoding: DecodeSet, num_steps: int, /) -> None:
        """Takes the blocks of a run of decode steps but its first; they must be free."""
        ...

    def steps_without_eviction(self, decoding: DecodeSet, num_steps: int, /) -> int:
        """Returns how many of the coming decode steps, at least one, evict nothing for certain."""
        ...

    def flush(self) -> None:
        """Forgets all that no request holds."""
        ...

    def check(self) -> None:
        """Raises AssertionError unless every block is accounted for."""
        ...


class Scheduler(Protocol):
    """Forms the batch of each step, and frees what finished requests held.

    After ``schedule`` the batch is every sequence of ``decoding``, one token each, whose KV blocks
    for the step are taken from ``kv``, and ``chunks`` of prompts; where ``decodes_pause``, it is
    the chunks alone, and for decodes nothing is taken. ``prefilling`` are the running sequences
    that are not decoding. ``may_overtake`` says whether a request that arrives while others wait
    might enter before them; where it may not, a queue that cannot move hides arrivals. A run has
    at most ``most_steps``: whoever is held back until then is looked at again. ``held_by`` says
    what kept the next waiting request out (:mod:`~dynosim.sim.engine.holds`).
    """

    running: dict[int, Sequence]
    prefilling: list[Sequence]
    decoding: DecodeSet
    chunks: list[tuple[Sequence, int]]
    held_by: int
    may_overtake: bool
    decodes_pause: bool
    most_steps: int

    @property
    def kv(self) -> BlockPool:
        """The blocks of the replica."""
        ...

    @property
    def waiting(self) -> WaitingQueue:
        """The requests that have not entered."""
        ...

    def schedule(self, now_s: float, /) -> bool:
        """Forms the next batch; returns whether the one after it may be another one at once.

        That is so where someone was preempted, or where those who wait are tried again. The batch
        is empty only when there is no work.
        """
        ...

    def chunk_repeats(self) -> int:
        """Returns how many further steps are certain to be like the one just formed.

        Each gives one prompt, which it does not complete, as many tokens as this one, and decodes
        theirs; the blocks for all of that are free, and nobody ends before the last.
        """
        ...

    def repeat_chunk(self, repeats: int, /) -> None:
        """Gives the prompt and the decodes their tokens, and blocks, of further such steps."""
        ...

    def settle(self, ended: list[Sequence], /) -> None:
        """Lets go of the sequences that the last step gave their last tokens, in running order.

        With asynchronous scheduling, ``schedule`` has formed the next batch by then, and this is
        called after every step, also where nobody ended.
        """
        ...

    def abort(self, seq: Sequence, /) -> bool:
        """Lets go, between two steps, of a sequence that nobody wants any more.

        Returns whether it was here. What it computed stays cached.
        """
        ...


class HoldsPrompts(Protocol):
    """A scheduler that lets no prompt run for ``held_steps`` steps; 0: they may."""

    held_steps: int

    def has_prompt(self) -> bool:
        """Whether a prompt could run in the next step."""
        ...


class StagingScheduler(Scheduler, Protocol):
    """A scheduler that can serve one of two pools, for prompts or for answers.

    ``loaded`` are the requests with blocks whose KV has come from elsewhere. They enter before
    anyone who waits, as they need a slot and nothing else.
    """

    loaded: deque[Sequence]

    def reserve(self, seq: Sequence, num_staged: int, /) -> bool:
        """Takes the blocks of a prompt that another engine computes; returns whether it could.

        ``num_staged`` have blocks already and have not entered. Nobody gets any while others wait
        whom this engine has to compute. ``computed`` becomes the tokens that are cached here.
        """
        ...

    def free(self, seq: Sequence, /) -> None:
        """Frees the blocks of a sequence that keeps them, or of one with nothing to come."""
        ...


class StepByStep(ABC):
    """For schedulers that form every step with a chunk by itself."""

    __slots__ = ()

    def settle(self, ended: list[Sequence]) -> None:
        """Lets go of sequences one by one."""
        for seq in ended:
            self.finish(seq)

    @abstractmethod
    def finish(self, seq: Sequence) -> None:
        """Lets go of a sequence that has all its tokens."""

    def chunk_repeats(self) -> int:
        """Returns 0."""
        return 0

    def repeat_chunk(self, repeats: int, /) -> None:
        """Raises AssertionError, as nothing is ever repeated."""
        raise AssertionError("a chunk was repeated that need not be like the next one")


def hand_over(seq: Sequence, decoding: DecodeSet, log: StepLog, now_s: float) -> None:
    """Lets a sequence generate whose KV and first token come from another engine."""
    seq.computed = seq.target
    seq.emitted = 1
    # Its own first token is that of the coming step.
    seq.first_step = log.num_steps
    log.handed_over(seq.index, now_s)
    decoding.join(seq)
