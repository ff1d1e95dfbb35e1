"""Steps of data-parallel ranks that share experts: all wait for the slowest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor

import numpy as np

from dynosim.hardware_models.resolve import ResolvedEngine
from dynosim.hardware_models.timing.graphs import Graphs, graphs_of
from dynosim.hardware_models.timing.pricing import PricedEngine, price
from dynosim.hardware_models.timing.source import OpSource
from dynosim.hardware_models.timing.step_timer import StepTimer, at_least

DUMMY_TOKENS = 1
"""Tokens of the batch that a rank without requests runs, so that the others' collectives end."""


@dataclass(frozen=True)
class RankRun:
    """What one rank would do next.

    ``new_tokens`` a step, of ``num_logits`` sequences that sample; its attention and head take
    ``own_s`` in the first step and ``growth_s`` more in each that follows, for up to ``steps``
    steps. ``decodes_only`` tells that no prompt is among them.
    """

    new_tokens: int
    num_logits: int
    own_s: float
    growth_s: float
    steps: int
    decodes_only: bool


class DataParallelTimer:
    """Times the steps of ``ranks`` data-parallel ranks that exchange tokens in every expert layer.

    Each layer waits twice for the slowest rank, so GPU = max over ranks of (attention + head +
    what else each does by itself) + experts and exchange of all ranks' tokens; step = max(host,
    GPU) where the backend schedules asynchronously, else their sum, host being the busiest rank's.

    Where CUDA graphs serve the step, every rank pads its batch to the size of the largest one and
    the padding goes through the experts too; beyond, ranks bring what they have. Where the sizes
    of a backend's graphs are not known, they are taken to serve every decode-only step. A rank
    without requests brings :data:`DUMMY_TOKENS`.

    ``own`` times a rank's attention and head alone. Known limits: how ranks tell each other their
    batch sizes is not priced; no layer hides an exchange behind computation.
    """

    __slots__ = (
        "_asynchronous",
        "_eager_s",
        "_host_per_sequence_s",
        "_host_s",
        "_joint_s",
        "_least_s",
        "_padded",
        "_padded_decodes",
        "_padded_steps",
        "_token_s",
        "own",
        "ranks",
        "sources",
    )

    sources: tuple[OpSource, ...]
    """Where the seconds of each op come from."""

    def __init__(
        self,
        priced: PricedEngine,
        graphs: tuple[Graphs, Graphs],
        *,
        ranks: int,
        eager: bool = False,
        host_step_s: float,
        host_per_sequence_s: float,
        asynchronous: bool,
    ) -> None:
        assert priced.joint_s is not None, "ranks that share nothing need no common timer"
        self.ranks = ranks
        self.sources = priced.sources
        self.own = _attention_and_head(priced)
        self._token_s: list[float] = priced.token_s.tolist()
        self._joint_s = priced.joint_s
        decode, mixed = graphs
        known = bool(decode.sizes) or eager
        self._padded_decodes = decode.largest if known else len(priced.token_s) - 1
        self._padded_steps = mixed.largest
        sizes = decode.run_tokens if known else np.arange
        self._padded: list[int] = sizes(self._padded_decodes + 1).tolist()
        self._least_s: list[float] = decode.least_s(self._padded_decodes + 1).tolist()
        self._eager_s = decode.launch_s
        self._host_s = host_step_s
        self._host_per_sequence_s = host_per_sequence_s
        self._asynchronous = asynchronous

    @classmethod
    def compile(cls, engine: ResolvedEngine) -> DataParallelTimer:
        """Returns the timer of an engine's ranks; UserError where something has no price."""
        return cls.of_priced(engine, price(engine), graphs_of(engine))

    @classmethod
    def of_priced(
        cls, engine: ResolvedEngine, priced: PricedEngine, graphs: tuple[Graphs, Graphs]
    ) -> DataParallelTimer:
        """Returns the timer of ranks whose ops cost what ``priced`` says."""
        backend = engine.backend
        return cls(
            priced,
            graphs,
            ranks=engine.ranks_in_step,
            eager=engine.args.enforce_eager,
            host_step_s=backend.host_step_s,
            host_per_sequence_s=backend.host_per_sequence_s,
            asynchronous=backend.asynchronous_scheduling,
        )

    def run(self, busy: Sequence[RankRun]) -> tuple[float, float, int]:
        """Returns (seconds of the first step, growth per step, steps) of ranks that work together.

        ``busy`` are the ranks that have requests, at least one. The steps follow one line: they end
        where any rank's own do, or another rank becomes the slowest.
        """
        decodes_only = all(rank.decodes_only for rank in busy)
        most = max(rank.new_tokens for rank in busy)
        largest = self._padded_decodes if decodes_only else self._padded_steps
        if most <= largest:
            padded = self._padded[most]
            tokens = padded * self.ranks
            lines = [(self._token_s[padded] + r.own_s, r.growth_s) for r in busy]
        else:
            idle = self.ranks - len(busy)
            tokens = sum(rank.new_tokens for rank in busy) + idle * DUMMY_TOKENS
            lines = [(self._token_s[r.new_tokens] + r.own_s, r.growth_s) for r in busy]
        steps = min(rank.steps for rank in busy) if decodes_only else 1
        own_s, growth_s, steps = slowest(lines, steps)
        host_s = self._host_s + self._host_per_sequence_s * max(r.num_logits for r in busy)
        least, after = self._eager_s if most > largest else self._least_s[most], host_s
        if self._asynchronous:
            least, after = max(least, host_s), 0.0
        gpu_s = own_s + float(self._joint_s[tokens])
        seconds, slope, last = at_least(least, after, (gpu_s, growth_s, float(steps - 1)), 0)
        return seconds, slope, int(last) + 1


def slowest(lines: Sequence[tuple[float, float]], steps: int) -> tuple[float, float, int]:
    """Returns the largest of (first, growth) lines, and for how many of ``steps`` it stays so.

    Growth is not negative.
    """
    first, growth = max(lines)
    for other_first, other_growth in lines:
        if other_growth > growth and steps > 1:
            overtakes = floor((first - other_first) / (other_growth - growth))
            steps = min(steps, overtakes + 1)
    return first, growth, steps


def _attention_and_head(priced: PricedEngine) -> StepTimer:
    nothing = np.zeros_like(priced.token_s)
    alone = replace(priced, token_s=nothing, joint_s=None)
    no_graphs = Graphs((), 0.0), Graphs((), 0.0)
    return StepTimer(alone, no_graphs, host_step_s=0.0, host_per_sequence_s=0.0, asynchronous=True)
