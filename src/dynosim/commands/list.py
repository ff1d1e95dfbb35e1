"""``dynosim list``: the names that the other commands know."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from dynosim.flags import Debug
from dynosim.hardware_models.backends import Backend, get_backend, list_backends
from dynosim.hardware_models.gpus import Gpu, get_gpu, gpu_sources, list_gpus
from dynosim.hardware_models.llm.architecture import LlmArchitecture
from dynosim.hardware_models.llm.catalog import get_model, list_models
from dynosim.terminal import print_json, table
