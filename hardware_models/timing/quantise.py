"""What quantising a GEMM's input costs where tables time it with the GEMM and engines do not."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np

from dynosim.hardware_models.arrays import FloatArray
from dynosim.hardware_models.cards import DATA, read_yaml
from dynosim.hardware_models.llm.architecture import Quantization
from dynosim.hardware_models.timing.gemm_sites import CurveSites
from dynosim.hardware_models.timing.tables import MissingTable, load_table
from dynosim.hardware_models.timing.weight_format import ALIASES, WeightFormat

Before = Literal["norm", "activation", "attention"]
"""What writes the input of a GEMM."""


def gemm_format(quantization: Quantization, dtype: str, backend: str, before: Before) -> str:
    """Returns the weight format ``dtype``, by who quantises the input of a GEMM behind ``before``.

    ``backend`` fuses it with what comes before (``_fused``), or runs a kernel that need not find
    the scales (``_static``), or one that does.
    """
    name = ALIASES.get(dtype, dtype)
    if name not in ("fp8", "nvfp4"):
        return dtype
    rule = _card()["fused"].get(backend, {"before": (), "only_static": True})
    is_static = quantization.static_scales or name == "nvfp4"
    is_static = is_static or (rule.get("calibrates", False) and quantization.method == "fp8")
    if before in rule["before"] and (is_static or not rule["only_static"]):
        return f"{name}_fused"
    return "fp8_static" if is_static and name == "fp8" else name


def timed_too_much_s(
    folder: str, backend: str, form: WeightFormat, m: FloatArray, k: int
) -> FloatArray:
    """Returns what rows of ``backend`` take beyond what an engine's GEMM does, shape (len(m),).

    Negative where the engine does more. Nothing where it is not known what the rows hold.
    """
    held = _card()["timed_with_gemm"].get(backend, {}).get(form.base)
    if held is None:
        return np.zeros(len(m))
    seconds = np.zeros(len(m))
    for part in {*held, *form.quantising}:
        share = (part in held) - (part in form.quantising)
        if share:
            seconds += share * _part_s(folder, _card()["parts_of"][backend], part, m, k)
    return seconds


def _part_s(folder: str, backend: str, part: str, m: FloatArray, k: int) -> FloatArray:
    try:
        sites = _sites(folder, backend, part)
    except MissingTable:
        return np.zeros(len(m))
    return sites.seconds_at(m, k)


@lru_cache(maxsize=64)
def _sites(folder: str, backend: str, part: str) -> CurveSites:
    return CurveSites.of(load_table(folder, backend, "quantise").select(part=part))


@lru_cache(maxsize=1)
def _card() -> dict[str, Any]:
    return read_yaml(DATA / "quantise.yaml")
