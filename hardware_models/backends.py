"""Serving backends as data rows: versions, scheduling and memory defaults, overheads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dynosim.hardware_models import nim
from dynosim.hardware_models.cards import Source, card_keys, read_card, source_of
from dynosim.hardware_models.errors import UserError, unknown_name
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.names import fold


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One backend at one version; figures and their sources stand in ``data/backends/*.yaml``.

    ``tables_version`` is the version whose measured kernel tables stand in for ``version``.
    Host times are per engine step and per sequence of the batch; with asynchronous scheduling a
    step takes the larger of host and GPU time, else their sum. ``step_gap_s`` and, for each layer,
    ``layer_launch_s`` pass on the GPU between kernels and are hidden by nothing. A collective takes
    ``communication_factor`` times what was measured of it alone, and ``collective_skew_s`` until
    the last GPU is there; a step of prefills and decodes ``mixed_step_factor`` times the sum of
    its kernels.

    ``frontend_s`` passes once per request before the engine sees it. The processor of an API server
    is busy for ``frontend_request_s`` with a request and ``frontend_per_input_token_s`` with each
    token of its prompt, and ``frontend_per_output_token_s`` with each token that it streams; of
    these ``frontend_detokenise_s`` also with a token that it keeps until more have come.

    CUDA graphs are captured for token counts that follow ``graph_steps``, pairs of where a stretch
    starts and its step, up to ``graph_max_tokens``, or ``graph_max_tokens_tp4`` where four GPUs or
    more share a layer and that differs. Where ``graph_padding``, smaller steps are padded to the
    next; ``graph_steps_exact`` are the sizes captured without, none where it cannot be turned off.
    ``graphs_in_mixed_steps`` says that steps with prefill replay graphs too: of the same sizes, or
    of ``graph_mixed_steps`` up to the token budget. ``eager_layer_s`` is the CPU time to launch
    one layer outside graphs, None where not known. ``top_p_bytes_per_logit`` is what drawing from
    the likeliest tokens moves per logit, None where it is one fused kernel like any draw.

    Norms of queries and keys take ``query_key_norm_kernels`` of their own, none where the rotary
    embedding's kernel does them.

    Kernels of this version differ from those of its tables: decode attention reads the KV cache
    once per KV head where ``decode_group_sizes`` (None: all) has the query heads per KV head; else
    each further query head reads ``reread_share`` of it again.
    """

    name: str
    version: str
    tables_version: str
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float | None
    block_size: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    asynchronous_scheduling: bool
    host_step_s: float
    host_per_sequence_s: float
    layer_launch_s: float
    frontend_s: float
    frontend_request_s: float = 0.0
    frontend_per_input_token_s: float = 0.0
    frontend_per_output_token_s: float = 0.0
    frontend_detokenise_s: float = 0.0
    step_gap_s: float = 0.0
    communication_factor: float = 1.0
    collective_skew_s: float = 0.0
    mixed_step_factor: float = 1.0
    graph_steps: tuple[tuple[int, int], ...] = ()
    graph_max_tokens: int = 0
    graph_max_tokens_tp4: int | None = None
    graph_padding: bool = True
    graph_steps_exact: tuple[tuple[int, int], ...] = ()
    graphs_in_mixed_steps: bool = False
    graph_mixed_steps: tuple[tuple[int, int], ...] = ()
    eager_layer_s: float | None = None
    top_p_bytes_per_logit: float | None = None
    query_key_norm_kernels: int = 2
    decode_group_sizes: tuple[int, ...] | None = None
    reread_share: float = 0.0

    def decode_reads(self, group_size: int) -> float:
        """Returns how often decode attention reads a KV head that so many query heads share."""
        if self.decode_group_sizes is None or group_size in self.decode_group_sizes:
            return 1.0
        return 1.0 + self.reread_share * (group_size - 1)

    def with_figures(self, figures: Mapping[str, Any]) -> Backend:
        """Returns this backend with other figures, as calibration has them; TypeError for names
        it does not have."""
        return replace(self, **figures)


_ALIASES = {"tensorrtllm": "trtllm", "tensorrt": "trtllm", "trt": "trtllm"}
_GIB = 2**30
_USUAL_MEMORY_GIB = 80.0
Version = tuple[int, int, int, int]


def list_backends() -> tuple[str, ...]:
    """Returns the names of all backends, sorted."""
    return card_keys("backends")


def version_key(version: str) -> Version:
    """Returns a key that orders versions; a release candidate comes before its release.

    Raises UserError for text that is no version.
    """
    found = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.?(?:rc|post)(\d+))?", version.strip())
    if found is None:
        raise UserError(f"not a version: {version!r}", hint="write it as 0.19.0 or 1.3.0rc20")
    major, minor, patch, extra = (int(x) if x else 0 for x in found.groups())
    return major, minor, patch, extra if "rc" in version else 10**6 + extra


def rows_by_version(versions: dict[str, dict[str, Any]], version: str) -> dict[str, Any]:
    """Returns the rows that hold at ``version``: later ones replace earlier ones, key by key."""
    wanted, rows = version_key(version), dict[str, Any]()
    for since in sorted(versions, key=version_key):
        if version_key(since) <= wanted:
            rows |= versions[since]
    return rows


@lru_cache(maxsize=256)
def get_backend(name: str, version: str | None = None, gpu: Gpu | None = None) -> Backend:
    """Returns a backend with its defaults at ``version`` (None: the default version).

    Defaults that depend on the GPU are those of ``gpu`` (None: a data-centre GPU of 80 GB or
    more). Raises UserError for an unknown backend, and for a version outside those whose
    constants are known.
    """
    card = read_card("backends", _key(name))
    version = (version or str(card["default_version"])).removeprefix("v")
    _check_version(card, version)
    rows = rows_by_version(card["versions"], version)
    figures = {figure: _hashable(_value_on(gpu, card, row)) for figure, row in rows.items()}
    tables = card["tables"]
    key = (gpu.tables or gpu.tables_nearest) if gpu else None
    tables_version = str(tables.get(key, tables["default"]))
    return Backend(name=card["name"], version=version, tables_version=tables_version, **figures)


def _value_on(gpu: Gpu | None, card: dict[str, Any], row: dict[str, Any]) -> Any:
    """Returns a figure's value on a GPU: by its memory, or by whether it is large."""
    if "by_memory_gib" in row:
        memory_gib = _USUAL_MEMORY_GIB if gpu is None else gpu.memory_bytes / _GIB
        return [value for least, value in row["by_memory_gib"] if least <= memory_gib][-1]
    if "large" in row and (gpu is None or _is_large(card["large_gpu"], gpu)):
        return row["large"]
    return row["value"]


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def reserve_mib(name: str, gpu: Gpu) -> dict[str, float]:
    """Returns the rows by which a backend works out the share of memory it takes of ``gpu``."""
    card = read_card("backends", name)
    return {key: _value_on(gpu, card, row) for key, row in card["memory_reserve"].items()}


def backend_sources(name: str, version: str | None = None) -> dict[str, Source]:
    """Returns figure -> source of a backend's defaults at ``version``."""
    backend = get_backend(name, version)
    card = read_card("backends", backend.name)
    rows = rows_by_version(card["versions"], backend.version)
    return {figure: source_of(card, row) for figure, row in rows.items()}


def _key(name: str) -> str:
    folded = fold(name)
    # NIM is a container around one of the engines.
    key = nim.default_engine() if folded == nim.NAME else _ALIASES.get(folded, folded)
    if key not in list_backends():
        raise unknown_name("backend", name, list_backends())
    return key


def _check_version(card: dict[str, Any], version: str) -> None:
    oldest, newest = str(card["oldest_version"]), str(card["newest_version"])
    if not version_key(oldest) <= version_key(version) <= version_key(newest):
        raise UserError(
            f"no constants for {card['name']} {version}",
            where="backend_version",
            hint=f"known: {oldest} to {newest}; nearest: "
            f"{oldest if version_key(version) < version_key(oldest) else newest}",
        )


def _is_large(rule: dict[str, Any], gpu: Gpu) -> bool:
    excepted = any(fold(word) in fold(gpu.name) for word in rule["except"])
    return not excepted and gpu.memory_bytes >= rule["min_memory_gib"]["value"] * _GIB
