"""From engine arguments to names looked up and defaults filled in."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.backends import Backend
from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.llm.architecture import LlmArchitecture


@dataclass(frozen=True, kw_only=True)
class ResolvedEngine:
    """Engine arguments with the backend's defaults in place of None, and the cards they name."""

    args: EngineArgs
    model: LlmArchitecture
    gpu: Gpu
    backend: Backend
