"""A workload as columns: one array element a request, so that a million requests stay small."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Requests in arrival order.

    ``arrival_s`` is seconds from the start of the run (all zero in a closed loop, where
    ``max_concurrency`` requests are kept in flight). ``prefix_ids[prefix_offsets[i]:
    prefix_offsets[i + 1]]`` are the identities of the full prefix blocks of request ``i``'s
    prompt, each covering ``prefix_block_tokens`` tokens: two requests share KV cache as far as
    their ids agree from the start, and one id never stands for two different prefixes.
    """

    name: str
    arrival_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray
    prefix_ids: IntArray
    prefix_offsets: IntArray
    prefix_block_tokens: int = 0
    max_concurrency: int | None = None

    def __len__(self) -> int:
        return len(self.arrival_s)
