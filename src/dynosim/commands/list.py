"""``dynosim list``: the names that the other commands know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from dynosim.flags import Debug, Quiet
from dynosim.hardware_models.backends import backend_sources, get_backend, list_backends
from dynosim.hardware_models.cards import read_card
from dynosim.hardware_models.errors import unknown_name
from dynosim.hardware_models.gpus import get_gpu, gpu_sources, list_gpus
from dynosim.hardware_models.llm.catalog import get_model, list_models
from dynosim.hardware_models.llm.parameters import active_parameters, total_parameters
from dynosim.terminal import print_json, table

Kind = Annotated[
    Literal["gpus", "models", "backends"], Parameter(help="What to list.", show_choices=True)
]
Word = Annotated[str | None, Parameter(help="Only names that contain this.", metavar="WORD")]
Json = Annotated[
    bool,
    Parameter(
        negative=(), show_default=False, help="Print JSON: every figure, with the source of each."
    ),
]


def list_command(
    kind: Kind,
    word: Word = None,
    /,
    *,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """List the GPUs, models or backends that the other commands know."""
    shelf = SHELVES[kind]
    names = shelf.names()
    found = [n for n in names if word is None or word.casefold() in shelf.spelt(n).casefold()]
    if not found:
        raise unknown_name(kind.removesuffix("s"), str(word), names)
    if json:
        print_json([shelf.card(name) for name in found])
    else:
        print(table(shelf.header, [shelf.row(name) for name in found], left=shelf.left))


def _gpu_row(name: str) -> list[str]:
    gpu = get_gpu(name)
    peaks = dict(gpu.peak_flop_s)
    nvlink = gpu.nvlink_bandwidth_bytes_s
    price = gpu.cloud_price_usd_hour
    return [
        gpu.key,
        gpu.name,
        f"{gpu.memory_bytes / 2**30:.1f}",
        f"{gpu.hbm_bandwidth_bytes_s / 1e12:.2f}",
        *(f"{peaks[d] / 1e12:,.0f}" if d in peaks else "-" for d in ("bfloat16", "fp8")),
        "-" if nvlink is None else f"{nvlink / 1e9:.0f}",
        f"{gpu.tdp_w:.0f}",
        "-" if price is None else f"{price:.2f}",
        "measured" if gpu.tables else "inferred",
    ]


def _gpu_card(name: str) -> dict[str, Any]:
    card = asdict(get_gpu(name))
    peaks = dict(card.pop("peak_flop_s"))
    sources = {figure: asdict(source) for figure, source in gpu_sources(name).items()}
    return card | {"peak_flop_s": peaks, "sources": sources}


def _model_row(name: str) -> list[str]:
    model = get_model(name)
    active = active_parameters(model) if model.is_moe else 0
    return [
        model.name,
        f"{total_parameters(model) / 1e9:.1f}",
        f"{active / 1e9:.1f}" if active else "-",
        str(model.num_layers),
        f"{model.num_attention_heads}/{model.num_key_value_heads}",
        "latent" if model.mla else str(model.head_dim),
        f"{model.max_position_embeddings:,}",
        model.quantization.experts if model.is_moe else model.quantization.linear,
    ]


def _model_card(name: str) -> dict[str, Any]:
    model = get_model(name)
    return asdict(model) | {
        "num_layers": model.num_layers,
        "total_parameters": total_parameters(model),
        "active_parameters": active_parameters(model),
    }


def _backend_row(name: str) -> list[str]:
    backend, card = get_backend(name), read_card("backends", name)
    return [
        backend.name,
        backend.version,
        f"{card['oldest_version']} to {card['newest_version']}",
        f"{backend.max_num_seqs:,}",
        f"{backend.max_num_batched_tokens:,}",
        f"{backend.gpu_memory_utilization or 'by GPU'}",
        "yes" if backend.asynchronous_scheduling else "no",
    ]


def _backend_card(name: str) -> dict[str, Any]:
    card = read_card("backends", name)
    known = {key: str(card[key]) for key in ("oldest_version", "newest_version")}
    sources = {figure: asdict(source) for figure, source in backend_sources(name).items()}
    return asdict(get_backend(name)) | known | {"sources": sources}


def _gpu_spellings(name: str) -> str:
    gpu = get_gpu(name)
    return " ".join((gpu.key, gpu.name, *gpu.aliases))


@dataclass(frozen=True)
class Shelf:
    """One kind of thing: its names, and how one of them is shown and found."""

    names: Callable[[], tuple[str, ...]]
    header: tuple[str, ...]
    row: Callable[[str], list[str]]
    card: Callable[[str], dict[str, Any]]
    spelt: Callable[[str], str] = str
    left: int = 1


SHELVES = {
    "gpus": Shelf(
        list_gpus,
        (
            *("gpu", "name", "GiB", "HBM TB/s", "bf16 TFLOP/s", "fp8 TFLOP/s"),
            *("NVLink GB/s", "W", "$/h", "timings"),
        ),
        _gpu_row,
        _gpu_card,
        _gpu_spellings,
        left=2,
    ),
    "models": Shelf(
        list_models,
        ("model", "B params", "active", "layers", "heads/KV", "head", "max length", "weights"),
        _model_row,
        _model_card,
    ),
    "backends": Shelf(
        list_backends,
        ("backend", "version", "known", "max seqs", "max batched tokens", "GPU share", "async"),
        _backend_row,
        _backend_card,
    ),
}
