"""What makes two runs the same: the digest that guards a resumed search."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import numpy as np

import dynosim
from dynosim.hardware_models.cards import DATA
from dynosim.search.space import SearchSpace
from dynosim.sim.workload.columns import Workload


def space_sha256(space: SearchSpace, workload: Workload) -> str:
    """Returns the digest of all that decides outcomes and the order of proposals.

    The workload counts by its content, not by its file's name; ``n_trials`` does not count, since
    a run may be continued with more.
    """
    content = space.to_mapping()
    del content["n_trials"]
    content["workload"] = workload_sha256(workload)
    content["dynosim"] = dynosim.__version__
    content["data"] = data_sha256()
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def workload_sha256(workload: Workload) -> str:
    """Returns the digest of a workload's columns."""
    digest = hashlib.sha256()
    for column in (
        workload.arrival_s,
        workload.input_tokens,
        workload.output_tokens,
        workload.prefix_ids,
        workload.prefix_offsets,
    ):
        digest.update(np.ascontiguousarray(column).tobytes())
    if workload.turns is not None:
        for column in (workload.turns.before, workload.turns.offsets, workload.turns.think_s):
            digest.update(np.ascontiguousarray(column).tobytes())
    closed = f"{workload.prefix_block_tokens} {workload.max_concurrency}"
    network = "" if workload.network is None else f" {workload.network}"
    digest.update(f"{closed}{network}".encode())
    return digest.hexdigest()


@cache
def data_sha256() -> str:
    """Returns the digest of the shipped figures: GPUs, backends, models and kernel tables."""
    digest = hashlib.sha256()
    for file in sorted(p for p in DATA.rglob("*") if p.is_file()):
        digest.update(file.relative_to(DATA).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def versions(*packages: str) -> dict[str, str]:
    """Returns the installed version of each package, ``absent`` where there is none."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found
