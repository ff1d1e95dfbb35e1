"""The serving sample as the wheel ``aiconfigurator-core`` brings it: no private folder is needed.

The rows are those of :mod:`~dynosim.accuracy.sets.silicon` and more, in other columns. Two things
are mended: where tensor and expert parallelism were both above one, ``tp_size`` holds their
product; and copies of one run count once.
"""

from __future__ import annotations

import csv
import importlib.util
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from dynosim.accuracy.case import Case
from dynosim.accuracy.sets.silicon import MAX_TP, judged_rows
from dynosim.hardware_models.errors import UserError

NAME = "silicon_sample"
SOURCES = ("silicon_sample.csv",)
_PACKAGE = "aiconfigurator_core"
_DSR1 = "deepseek-ai/DeepSeek-R1-0528"
_MODELS = {"deepseek-ai/DeepSeek-R1": _DSR1, "deepseek-ai/DeepSeek-V3": _DSR1}
"""InferenceX serves the checkpoint of May 2025; the ids of rows named V3 say ``dsr1`` too."""


def public_folder() -> Path:
    """Returns the folder of the installed wheel's systems; raises UserError where it is not."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise UserError(
            "no measured set at hand: the package aiconfigurator-core is not installed",
            where="--data",
            hint="pip install 'dynosim[validate]' (Linux x86-64, Python < 3.14), or give the "
            "folder that has measured sets with --data DIR",
        )
    return Path(found.origin).parent / "systems"


def read(folder: Path) -> list[Case]:
    """Returns the rows that can be simulated; raises UserError for an unreadable file."""
    return [case for case, _ in _judged(folder) if case is not None]


def dropped(folder: Path) -> dict[str, int]:
    """Returns why rows were left out, and how many for each reason."""
    return dict(Counter(reason for case, reason in _judged(folder) if case is None))


def _judged(folder: Path) -> Iterator[tuple[Case | None, str]]:
    path = folder / SOURCES[0]
    if not path.is_file():
        raise UserError(f"there is no {path}", where="--set", hint="aiconfigurator-core==0.12.0")
    with path.open(newline="") as lines:
        yield from judged_rows(map(_renamed, csv.DictReader(lines)), path.name, NAME)


def _renamed(row: Mapping[str, str]) -> dict[str, str]:
    """Returns a row of the wheel in the columns that :mod:`silicon` reads."""
    origin = row["silicon_data_source"]
    is_gap = "gap-analysis" in origin or "gap_analysis" in row["id"]
    measured = re.search(r"measured=(\d{4}-\d\d-\d\d)", origin)
    concurrency = re.search(r"silicon_concurrency=(\d+)", origin)
    ttft = row["silicon_ttft_ms"]
    return {
        "source": "gap analysis" if is_gap else "InferenceMAX",
        "serving_mode": row["mode"],
        "gpu": row["system"],
        "backend": row["backend"],
        "backend_version": row["backend_version"],
        "model": _MODELS.get(row["model_path"], row["model_path"]),
        "precision_weights": row["precision"],
        "tp": _tensor_parallel(row),
        "ep": row["moe_ep_size"],
        "attention_dp": row["attention_dp_size"],
        "isl": row["isl"],
        "osl": row["osl"],
        "concurrency": concurrency[1] if concurrency else row["batch_size"],
        "date": measured[1] if measured else "",
        "ttft_ms_p50": "" if is_gap else ttft,
        "ttft_ms_mean": ttft if is_gap else "",
        "tpot_ms": row["silicon_tpot_ms"],
    }


def _tensor_parallel(row: Mapping[str, str]) -> str:
    """Returns the tensor-parallel size, out of its product with an equal expert-parallel one."""
    tp, ep = (float(row[k] or 1) for k in ("tp_size", "moe_ep_size"))
    return str(math.isqrt(int(tp))) if tp > MAX_TP and tp == ep * ep else row["tp_size"]
