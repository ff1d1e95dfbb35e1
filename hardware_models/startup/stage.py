"""One stage of a start, and a start as stages one after the other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dynosim.hardware_models.startup.storage import Storage

if TYPE_CHECKING:
    import pandas as pd

Over = Literal["registry", "storage"]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """``seconds`` of its own, then ``num_bytes`` over what concurrent starts share, if any.

    Bytes come at no more than ``most_bytes_s`` even with nobody else there. ``is_of_node`` tells
    that a restart on the same node is spared the stage.
    """

    name: str
    seconds: float = 0.0
    num_bytes: float = 0.0
    most_bytes_s: float = math.inf
    over: Over | None = None
    is_of_node: bool = False

    def alone_s(self, bandwidth_bytes_s: float) -> float:
        """Returns how long the stage takes where nobody else reads."""
        return self.seconds + self.num_bytes / min(self.most_bytes_s, bandwidth_bytes_s)


@dataclass(frozen=True, kw_only=True)
class StartupPlan:
    """A start by one method: its stages, and what follows where it fails.

    A share ``failure_rate`` of starts fails at the end of its stages and goes on with those of
    ``fallback``. ``is_waking`` says that it wakes a replica that was started before and kept its
    GPUs. ``notes`` say what was decided for the user.
    """

    method: str
    stages: tuple[Stage, ...]
    storage: Storage
    registry_bytes_s: float = math.inf
    failure_rate: float = 0.0
    fallback: StartupPlan | None = None
    is_waking: bool = False
    notes: tuple[str, ...] = ()

    def bandwidth_bytes_s(self, stage: Stage) -> float:
        """Returns the bandwidth of what the stage reads from; infinity where it reads nothing."""
        if stage.over is None:
            return math.inf
        return self.storage.bandwidth_bytes_s if stage.over == "storage" else self.registry_bytes_s

    def stage_s(self, stage: Stage) -> float:
        """Returns the seconds of one of the stages where nobody else starts."""
        return stage.alone_s(self.bandwidth_bytes_s(stage))

    @property
    def alone_s(self) -> float:
        """Seconds of a start that does not fail and shares nothing with others."""
        return sum(map(self.stage_s, self.stages))

    def to_frame(self) -> pd.DataFrame:
        """Returns the stages, a row each: ``seconds`` where nobody else starts, ``gib`` read."""
        import pandas as pd

        rows = [(s.name, self.stage_s(s), s.num_bytes / 2**30) for s in self.stages]
        return pd.DataFrame(rows, columns=["stage", "seconds", "gib"])
