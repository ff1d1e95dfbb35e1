"""What a run rests on, in rows of words: data, load, seed, versions, and how sure it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from dynosim.accuracy.error_classes import LEVEL
from dynosim.accuracy.intervals import read_model
from dynosim.search.result import SearchResult

MODES = {
    "exhaustive": "every candidate that can run was simulated",
    "screened": "every candidate was estimated, those that promise most were simulated",
    "tpe": "a sample of the space was simulated",
}
ENDINGS = {
    "finished": "to its end",
    "timeout": "stopped at its time limit",
    "interrupted": "interrupted",
}
TIMINGS = {
    "measured": "all measured on the trial's GPU and backend",
    "transferred": "some transferred from another GPU or backend",
    "roofline": "some from a roofline",
}


def _arrivals(load: Mapping[str, Any]) -> str:
    # There is no rate where all requests arrive at once.
    rate_req_s = load.get("rate_req_s")
    return "all at once" if rate_req_s is None else f"{rate_req_s:.3g} a second"


def summary(result: SearchResult, manifest: Mapping[str, Any]) -> str:
    """Returns a run in one line."""
    feasible = sum(t.is_feasible for t in result.trials)
    load = manifest["workload"]
    rate = load.get("max_concurrency")
    pace = f"{rate} at once" if rate is not None else _arrivals(load)
    return (
        f"{len(result.frontier)} of {len(result.trials):,} trials are on the frontier, "
        f"{feasible:,} are feasible; {manifest['size']:,} candidates in the space. "
        f"Load: {load.get('name', 'a workload')}, {load['num_requests']:,} requests, {pace}."
    )


def basis(result: SearchResult, manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the rows of a report's last table."""
    versions = manifest["versions"]
    others = [f"{k} {v}" for k, v in versions.items() if k not in ("dynosim", "data_sha256")]
    rows = [
        ("Search", f"{MODES[manifest['mode']]}; {ENDINGS[manifest['ending']]}"),
        ("Limits", "; ".join(map(str, result.space.limits)) or "none"),
        ("Kernel times", _timings(result)),
        ("Accuracy", _accuracy()),
        ("Workload", _workload(manifest["workload"])),
        ("Seed", str(manifest["seed"])),
        ("dynosim", f"{versions['dynosim']}, shipped data {versions['data_sha256'][:12]}"),
        ("Versions", ", ".join(others)),
        ("Space", f"sha256 {manifest['space_sha256'][:12]}"),
    ]
    return [(name, words) for name, words in rows if words]


def _timings(result: SearchResult) -> str:
    counts = Counter(t.timing for t in result.trials if t.is_simulated and t.timing)
    return ", ".join(f"{TIMINGS[k]} ({counts[k]:,} trials)" for k in TIMINGS if counts[k])


def _accuracy() -> str:
    covered = read_model().coverage
    shares = [f"{k.upper()} {v:.0%}" for k, v in covered.items() if k in ("ttft", "tpot")]
    if not shares:
        return "no errors are known: predictions have no intervals"
    return (
        f"intervals are meant to hold {LEVEL:.0%} of measurements; of groups that no fit had seen "
        f"they held {', '.join(shares)}"
    )


def _workload(load: Mapping[str, Any]) -> str:
    plain = {k: v for k, v in load.items() if k not in ("sha256", "name") and v is not None}
    words = [f"{k} {v:.6g}" if isinstance(v, float) else f"{k} {v}" for k, v in plain.items()
             if not isinstance(v, Mapping | list)]  # fmt: skip
    return f"{load.get('name', '')}: {', '.join(words)}; sha256 {load['sha256'][:12]}"
