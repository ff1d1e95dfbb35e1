"""What other simulators score: published predictions beside the measurements of the same runs."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dynosim.hardware_models.cards import read_yaml

_CITED = Path(__file__).resolve().parent / "data" / "peers.yaml"
SIM2REAL = "groundtruth/sim2real_predicted_vs_measured_all.csv.gz"
SERVINGSIM = "groundtruth/llmservingsim_predicted_vs_measured.csv.gz"
_SIM2REAL_QUANTITIES = {"e2e_mean": "e2el", "ttft_mean": "ttft", "itl_mean": "itl"}
_SERVINGSIM_QUANTITIES = {"TTFT": "ttft", "TPOT": "tpot", "Latency": "e2el", "E2E": "e2el"}


@dataclass(frozen=True, kw_only=True)
class PeerScore:
    """One simulator's errors on one quantity of one set, as shares of the measured value.

    ``bias`` is the median of signed errors, None where it was not published.
    """

    set: str
    simulator: str
    quantity: str
    n: int
    median_ape: float
    bias: float | None
    source: str


def peer_scores(data: Path | None) -> list[PeerScore]:
    """Returns the cited scores, and those computed from published predictions below ``data``."""
    scores = [PeerScore(**score) for score in read_yaml(_CITED)["scores"]]
    if data is not None and (data / SIM2REAL).is_file():
        scores += _scores(_sim2real(data / SIM2REAL), "blis")
    if data is not None and (data / SERVINGSIM).is_file():
        scores += _scores(_servingsim(data / SERVINGSIM), "llmservingsim")
    return sorted(scores, key=lambda s: (s.set, s.quantity, s.median_ape))


@dataclass(frozen=True)
class _Prediction:
    simulator: str
    quantity: str
    error: float
    source: str


def _scores(predictions: Iterator[_Prediction], name: str) -> list[PeerScore]:
    classes: dict[tuple[str, str], list[_Prediction]] = {}
    for prediction in predictions:
        classes.setdefault((prediction.simulator, prediction.quantity), []).append(prediction)
    return [
        PeerScore(
            set=name,
            simulator=simulator,
            quantity=quantity,
            n=len(found),
            median_ape=float(np.median([abs(p.error) for p in found])),
            bias=float(np.median([p.error for p in found])),
            source=found[0].source,
        )
        for (simulator, quantity), found in classes.items()
    ]


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as lines:
        yield from csv.DictReader(lines)


def _sim2real(path: Path) -> Iterator[_Prediction]:
    """Yields the means; runs that several evaluations list count once a simulator."""
    seen = set()
    for row in _rows(path):
        quantity = _SIM2REAL_QUANTITIES.get(row["metric_name"])
        run = tuple(row[k] for k in ("simulator", "experiment", "stage_index", "metric_name"))
        if quantity is None or not row["predicted_ms"] or (run, row["measured_ms"]) in seen:
            continue
        seen.add((run, row["measured_ms"]))
        error = float(row["predicted_ms"]) / float(row["measured_ms"]) - 1
        yield _Prediction(row["simulator"], quantity, error, row["source"].split("@")[0])


def _servingsim(path: Path) -> Iterator[_Prediction]:
    for row in _rows(path):
        quantity = _SERVINGSIM_QUANTITIES.get(row["metric"])
        if quantity is not None and row["stat"] in ("Mean", "Median"):
            error = float(row["llmservingsim_predicted_ms"]) / float(row["measured_ms"]) - 1
            yield _Prediction("LLMServingSim", quantity, error, row["source"].split("@")[0])
