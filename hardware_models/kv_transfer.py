"""What it takes to move a prompt's KV cache from one engine to another: bytes, links, rules."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from dynosim.hardware_models.cards import DATA, Source, read_yaml, source_of
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import Gpu
from dynosim.hardware_models.memory.draft import draft_kv_bytes_per_token
from dynosim.hardware_models.memory.kv_cache import layer_kv_bytes_per_token, state_bytes
from dynosim.hardware_models.resolve import ResolvedEngine

Fabric = Literal["nvlink", "pcie", "network"]
Overlap = Literal["none", "chunk", "layer"]
FirstToken = Literal["recomputed", "handed_over"]


@dataclass(frozen=True, kw_only=True)
class KvTransferRules:
    """A backend's way of handing prompts over; ``data/kv_transfer.yaml`` says what each means."""

    first_token: FirstToken
    overlap: Overlap
    decode_prefix_caching: bool
    latency_s: float
    line_rate_share: float


@lru_cache(maxsize=16)
def kv_transfer_rules(backend: str) -> KvTransferRules:
    """Returns the rules of ``backend``; UserError where it serves no separate pools."""
    rows = _card().get(backend)
    if rows is None or backend == "sources":
        known = ", ".join(name for name in _card() if name != "sources")
        raise UserError(
            f"{backend} cannot hand prompts over to another engine",
            where="prefill_replicas",
            hint=f"0, or a backend that can: {known}",
        )
    return KvTransferRules(**{name: row["value"] for name, row in rows.items()})


def kv_transfer_sources(backend: str) -> dict[str, Source]:
    """Returns rule -> where it was read."""
    card = _card()
    return {name: source_of(card, row) for name, row in card[backend].items()}


@lru_cache(maxsize=1)
def _card() -> dict[str, Any]:
    return read_yaml(DATA / "kv_transfer.yaml")


@dataclass(frozen=True, kw_only=True)
class KvBytes:
    """Bytes that one engine's GPUs together receive with the KV cache of a prompt.

    ``windows`` are (bytes per token, window) of sliding-window layers, of which no more than the
    window is kept; ``state`` is what does not grow with the prompt.
    """

    per_token: int
    windows: tuple[tuple[int, int], ...] = ()
    state: int = 0

    def of(self, tokens: int) -> int:
        """Returns the bytes of the first ``tokens`` of a prompt, states left out."""
        cut = sum(size * min(tokens, window) for size, window in self.windows)
        return self.per_token * tokens + cut


def kv_bytes(engine: ResolvedEngine) -> KvBytes:
    """Returns what ``engine`` receives; key-value heads and latents that ranks copy count each."""
    tp, per_token = engine.args.tensor_parallel_size, layer_kv_bytes_per_token(engine)
    full = state = 0
    windows: dict[int, int] = defaultdict(int)
    for group in engine.model.layers:
        if group.mixer in ("linear", "mamba"):
            state += group.count * state_bytes(engine.model, tp) * tp
        elif group.mixer == "none":
            continue
        elif group.window is None:
            full += group.count * per_token * tp
        else:
            windows[group.window] += group.count * per_token * tp
    full += draft_kv_bytes_per_token(engine) * tp
    cut = tuple((size, window) for window, size in sorted(windows.items()))
    return KvBytes(per_token=full, windows=cut, state=state)


@dataclass(frozen=True, kw_only=True)
class KvTransfer:
    """How prompts get from prefill to decode engines.

    ``egress_bytes_s`` and ``ingress_bytes_s`` are those of all GPUs of one prefill engine and one
    decode engine; ``layers`` are the model's, of which ``overlap`` by layer sends one at a time.
    """

    fabric: Fabric
    size: KvBytes
    egress_bytes_s: float
    ingress_bytes_s: float
    latency_s: float
    overlap: Overlap
    first_token: FirstToken
    layers: int

    @property
    def passes_pcie(self) -> bool:
        """Whether bytes pass the GPUs' PCIe links: network interfaces, too, are behind those."""
        return self.fabric != "nvlink"


def kv_transfer(
    prefill: ResolvedEngine,
    decode: ResolvedEngine,
    *,
    num_gpus: int,
    fabric: Fabric | None = None,
    bandwidth_gb_s: float | None = None,
    latency_ms: float | None = None,
    overlap: Overlap | None = None,
) -> KvTransfer:
    """Returns the transfer between two pools of ``num_gpus`` GPUs in all.

    ``bandwidth_gb_s`` is per GPU and direction, instead of the share of the fabric's that the
    backend reaches. Raises UserError, located by the deployment's keys, for pools that cannot hand
    over, and for a fabric that does not join them.
    """
    rules = kv_transfer_rules(decode.backend.name)
    _check_pools(prefill, decode)
    if bandwidth_gb_s is not None and not bandwidth_gb_s > 0.0:
        raise UserError(
            f"found {bandwidth_gb_s:g}", where="kv_transfer_bandwidth_gb_s", hint="allowed: > 0"
        )
    if latency_ms is not None and not latency_ms >= 0.0:
        raise UserError(
            f"found {latency_ms:g}", where="kv_transfer_latency_ms", hint="allowed: >= 0"
        )
    chosen = fabric or _fabric(prefill.gpu, decode.gpu, num_gpus)
    if fabric is not None:
        _check_fabric(fabric, prefill.gpu, decode.gpu, num_gpus)

    def port_bytes_s(engine: ResolvedEngine) -> float:
        gpus = engine.args.tensor_parallel_size * engine.args.pipeline_parallel_size
        if bandwidth_gb_s is not None:
            return gpus * bandwidth_gb_s * 1e9
        return gpus * _wire_bytes_s(engine.gpu, chosen) * rules.line_rate_share

    return KvTransfer(
        fabric=chosen,
        size=kv_bytes(decode),
        egress_bytes_s=port_bytes_s(prefill),
        ingress_bytes_s=port_bytes_s(decode),
        latency_s=rules.latency_s if latency_ms is None else latency_ms / 1e3,
        overlap=overlap or rules.overlap,
        first_token=rules.first_token,
        layers=decode.model.num_layers,
    )


def _check_pools(prefill: ResolvedEngine, decode: ResolvedEngine) -> None:
    for name in ("backend", "backend_version", "model", "quantization", "kv_cache_dtype"):
        ours, theirs = getattr(prefill.args, name), getattr(decode.args, name)
        if ours != theirs:
            raise UserError(
                f"prefill has {ours}, decode {theirs}: they could not share a KV cache",
                where=f"prefill_{name}",
            )


def _fabric(prefill: Gpu, decode: Gpu, num_gpus: int) -> Fabric:
    """Returns the fastest fabric that joins all GPUs: pools of different GPUs stand apart."""
    if prefill.key != decode.key:
        return "network"
    if num_gpus <= prefill.nvlink_domain_gpus:
        return "nvlink"
    return "pcie" if num_gpus <= prefill.gpus_per_node else "network"


def _check_fabric(fabric: Fabric, prefill: Gpu, decode: Gpu, num_gpus: int) -> None:
    """Raises UserError for a link to nowhere."""
    if fabric == "network":
        return
    problem = ""
    if prefill.key != decode.key:
        problem = f"{prefill.key} and {decode.key} do not share a node"
    elif fabric == "nvlink" and prefill.nvlink_domain_gpus == 1:
        problem = f"{prefill.key} has no NVLink"
    elif fabric == "nvlink" and num_gpus > prefill.nvlink_domain_gpus:
        problem = f"NVLink joins {prefill.nvlink_domain_gpus} {prefill.key}, not {num_gpus}"
    elif fabric == "pcie" and num_gpus > prefill.gpus_per_node:
        problem = f"a node has {prefill.gpus_per_node} {prefill.key}, not {num_gpus}"
    if problem:
        raise UserError(problem, where="kv_transfer_fabric", hint="network joins any two engines")


def _wire_bytes_s(gpu: Gpu, fabric: Fabric) -> float:
    if fabric == "nvlink":
        assert gpu.nvlink_bandwidth_bytes_s is not None, "checked before"
        return gpu.nvlink_bandwidth_bytes_s
    return gpu.pcie_bandwidth_bytes_s if fabric == "pcie" else gpu.internode_bandwidth_bytes_s
