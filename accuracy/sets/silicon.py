"""The serving sample of AIConfigurator: InferenceX runs, and NVIDIA's own between them.

Two loads (the columns ``source`` and ``load_mode`` tell them apart):

- *InferenceX* (github.com/SemiAnalysisAI/InferenceX): a closed loop of ``concurrency``, ten
  prompts for each of its slots, all at once at first, lengths uniform on 0.8 to 1.0 of ISL and
  OSL, answers not cut short. Twice ``concurrency`` warm-up prompts go before and are waited for
  (since January 2026): they warm kernels and graphs, of which the simulation has no cold ones.
- *gap analysis*: a closed loop of fixed lengths, ten prompts for each slot too.

All figures are taken as means. For InferenceX the source does not say which; that TTFT grows by a
twentieth of a prompt's prefill with every slot of the loop tells it: a tenth of the prompts come in
the first wave, wait for half of the wave each, and a median would not see them.

Every row is simulated in full: no prompts are left out to save time.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dynosim.accuracy import inferencex
from dynosim.accuracy.case import Case
from dynosim.hardware_models.backends import version_key
from dynosim.hardware_models.cards import read_card
from dynosim.hardware_models.gpus import get_gpu
from dynosim.sim.deployment import Deployment
from dynosim.sim.workload.spec import WorkloadSpec

NAME = "silicon"
SOURCES = ("groundtruth/inferencemax_aic_silicon.csv.gz",)
PROMPTS_PER_SLOT = 10
"""Prompts for each slot of the closed loop (`benchmark_lib.sh` and recipes of InferenceX)."""
RANGE_RATIO = 0.8
"""Shortest length as a share of ISL and OSL (``RANDOM_RANGE_RATIO`` of InferenceX)."""
BACKENDS = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm", "trtllm": "trtllm"}
GENERATED: Mapping[str, Mapping[str, Any]] = {
    "vllm": {},
    "sglang": {},
    "trtllm": {"cuda_graph_padding": True},
}
"""What the configurations that AIConfigurator generates say beyond an engine's defaults: its own
runs were made with such."""
MAX_TP = 8
"""GPUs of one node; rows with more leave open how the model was laid out over nodes."""

Row = Mapping[str, str]


class Unusable(Exception):
    """Raised for a row that cannot become a case; its text is the reason."""


def read(folder: Path) -> list[Case]:
    """Returns the rows that can be simulated; raises UserError for an unreadable file."""
    return [case for case, _ in _judged(folder) if case is not None]


def dropped(folder: Path) -> dict[str, int]:
    """Returns why rows were left out, and how many for each reason."""
    return dict(Counter(reason for case, reason in _judged(folder) if case is None))


def _judged(folder: Path) -> Iterator[tuple[Case | None, str]]:
    path = folder / SOURCES[0]
    with gzip.open(path, "rt", newline="") as lines:
        yield from judged_rows(csv.DictReader(lines), path.name, NAME)


def judged_rows(rows: Iterable[Row], file: str, name: str) -> Iterator[tuple[Case | None, str]]:
    """Yields every row as a case, or None and the reason why not.

    A run that stands in both sources counts once: the second, rounded copy is left out.
    """
    seen: set[tuple[object, ...]] = set()
    for line, row in enumerate(rows, 2):
        try:
            case = _case(row, f"{file}:{line}", name)
            run = _run(case)
            if run in seen:
                raise Unusable("the same run as another row")
            seen.add(run)
            yield case, ""
        except Unusable as reason:
            yield None, str(reason)


def _run(case: Case) -> tuple[object, ...]:
    """Returns what two copies of one run share: figures are rounded to 0.01 ms in one of them."""
    figures = sorted((name, round(ms, 1)) for name, ms in case.measured.items())
    return case.deployment, case.workload, tuple(figures)


def _case(row: Row, place: str, name: str) -> Case:
    """Returns a row as it was run; raises Unusable with the reason where it cannot be told."""
    if row["serving_mode"] != "agg":
        raise Unusable("disaggregated serving is not simulated yet")
    load = _load(row)
    run, assumed = _run_of(row)
    like_inferencex = load.random_range_ratio is not None
    recipe = inferencex.recipe(run) if like_inferencex else None
    deployment, guesses = _deployment(row, run, recipe)
    if recipe is None:
        assumed += ["flags of the engine: defaults", "fixed lengths, ten prompts a slot"]
    elif recipe.unmodelled:
        assumed += [f"not modelled: {flag}" for flag in recipe.unmodelled]
    if like_inferencex and not inferencex.has_warm_ups(row["date"]):
        assumed.append("warm: no warm-ups went before the run")
    return Case(
        set=name,
        group=f"{deployment.model} on {run.gpu} with {run.backend}",
        row=place,
        deployment=deployment,
        workload=load,
        measured=_measured(row, run, like_inferencex),
        overheads=recipe.figures if recipe else {},
        assumed=(*assumed, *guesses),
        tags={"mode": "agg", "source": "InferenceX" if like_inferencex else "gap analysis"},
    )


def _measured(row: Row, run: inferencex.Run, like_inferencex: bool) -> dict[str, float]:
    """Returns the figures of a row; TTFT only where no kernel was compiled in it.

    SGLang compiles kernels on first use: its runs without warm-ups have TTFTs up to fourteen times
    those of the same configuration with them, on the same GPU four months later.
    """
    measured = {"mean_tpot_ms": float(row["tpot_ms"])}
    compiles = run.backend == "sglang" and not inferencex.has_warm_ups(row["date"])
    if not (like_inferencex and compiles):
        measured["mean_ttft_ms"] = float(row["ttft_ms_p50"] or row["ttft_ms_mean"])
    return measured


def _load(row: Row) -> WorkloadSpec:
    concurrency, isl, osl = (int(float(row[k])) for k in ("concurrency", "isl", "osl"))
    load = WorkloadSpec(
        random_input_len=isl,
        random_output_len=osl,
        max_concurrency=concurrency,
        num_prompts=PROMPTS_PER_SLOT * concurrency,
    )
    if not _is_inferencex(row):
        return load
    return replace(load, random_range_ratio=RANGE_RATIO, random_range_convention="inferencex")


def _is_inferencex(row: Row) -> bool:
    """Returns whether a row is a run of InferenceX, whichever list it came through.

    Rows of the gap analysis with its models and lengths are copies of its runs (TTFT and TPOT
    agree with those of the other list to the last digit they keep).
    """
    copied = any(name in row["model"] for name in ("Qwen3.5", "Kimi-K2.5"))
    return row["source"].startswith("InferenceMAX") or copied


def _run_of(row: Row) -> tuple[inferencex.Run, list[str]]:
    weights, assumed = row["precision_weights"], list[str]()
    if not weights:
        weights = "bf16"
        assumed.append("weights in bf16: the source names no format")
    return inferencex.Run(
        backend=BACKENDS[row["backend"]],
        model=row["model"],
        weights=weights,
        gpu=get_gpu(row["gpu"]).key,
        tp=_layout(row)[0],
        isl=int(row["isl"]),
        osl=int(row["osl"]),
        concurrency=int(float(row["concurrency"])),
    ), assumed


def _layout(row: Row) -> tuple[int, int]:
    """Returns the GPUs of a replica and how many ranks share its attention between them.

    TensorRT-LLM's recipes make every GPU a rank; where the source holds the square of their number
    (64 ranks on 8 GPUs), its root is meant. vLLM's rows with ranks are runs of tensor and expert
    parallelism over the same GPUs: so say the configurations, and the same runs stand in other rows
    without ranks. Raises Unusable for layouts that are not simulated.
    """
    tp, ep, ranks = (int(float(row[k] or 1)) or 1 for k in ("tp", "ep", "attention_dp"))
    if tp > MAX_TP:
        raise Unusable(f"more than {MAX_TP} GPUs in one tensor-parallel group: layout not stated")
    if ranks > 1 and BACKENDS[row["backend"]] == "vllm":
        return tp, 1
    if ranks > 1:
        ranks = math.isqrt(ranks) if ranks > MAX_TP or ranks == tp * tp else ranks
        return ranks, ranks
    if ep not in (1, tp):
        raise Unusable("experts split both ways are not simulated")
    return tp, 1


def _deployment(
    row: Row, run: inferencex.Run, recipe: inferencex.Recipe | None
) -> tuple[Deployment, list[str]]:
    model = inferencex.checkpoint(run.model, run.weights)
    if model is None:
        raise Unusable(f"no architecture of {row['model']} in {run.weights}")
    version, guesses = _version(row, run)
    gpus, ranks = _layout(row)
    deployment = Deployment(
        model=model,
        gpu=run.gpu,
        backend=run.backend,
        backend_version=version,
        tensor_parallel_size=gpus // ranks,
        data_parallel_size=ranks,
        enable_expert_parallel=float(row["ep"] or 1) > 1,
        max_model_len=run.isl + run.osl + 256,
        **{"enable_prefix_caching": False, **(recipe.flags if recipe else GENERATED[run.backend])},
    )
    return deployment, guesses


def _version(row: Row, run: inferencex.Run) -> tuple[str, list[str]]:
    """Returns the nearest version that the backend's constants are known for."""
    found = re.match(r"\d+\.\d+\.\d+(rc\d+)?", row["backend_version"])
    on_day = inferencex.version_on(run.backend, row["date"] or "")
    stated = found[0] if found else on_day
    nearest = _nearest_version(run.backend, stated)
    if stated == nearest and found:
        return nearest, []
    said = row["backend_version"] or "none"
    return nearest, [f"constants of {run.backend} {nearest}; the source says {said}"]


def _nearest_version(backend: str, stated: str | None) -> str:
    """Returns the stated version, or the end of the known range that is nearest to it."""
    card = read_card("backends", backend)
    oldest, newest = str(card["oldest_version"]), str(card["newest_version"])
    if stated is None:
        return newest
    return min(max(stated, oldest, key=version_key), newest, key=version_key)
