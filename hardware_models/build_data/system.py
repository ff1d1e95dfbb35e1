"""One upstream GPU: its peak rates and the measured files of each op family."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GPUS = (
    *("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "gb200"),
    *("b300_sxm", "gb300", "l40s", "rtx_pro_6000_server"),
)
"""Folder names of the GPUs whose tables are shipped, as upstream spells them."""

BACKENDS = ("vllm", "sglang", "trtllm")

_STAGES = {"dev": -2, "rc": -1, "": 0, "post": 1}


@dataclass(frozen=True, kw_only=True)
class System:
    """Peak rates and shape of one GPU's node, as the wheel's own ``systems/<gpu>.yaml`` gives them.

    ``device`` is the driver's name for the GPU, as the GEMM tables carry it. ``flop_s`` maps
    bfloat16, int8, fp8 and fp4 to dense FLOP/s, where the GPU has that format.
    """

    gpu: str
    device: str
    memory_bytes_s: float
    link_bytes_s: float
    gpus_per_node: int
    flop_s: dict[str, float]


@dataclass(frozen=True, order=True)
class Measured:
    """One upstream parquet file: who measured it, at which version, and where it stands."""

    backend: str
    version: str
    path: Path
    upstream: str


@dataclass(frozen=True)
class Wheel:
    """Returns what the unpacked wheel holds; ``systems`` is its ``systems`` folder."""

    systems: Path

    def system(self, gpu: str) -> System:
        """Returns the card of one GPU."""
        card = _yaml(self.systems / f"{gpu}.yaml")
        rates = {
            name.removesuffix("_tc_flops"): float(value)
            for name, value in card["gpu"].items()
            if name.endswith("_tc_flops")
        }
        return System(
            gpu=gpu,
            device=self._device(gpu),
            memory_bytes_s=float(card["gpu"]["mem_bw"]),
            link_bytes_s=float(card["node"]["intra_node_bw"]),
            gpus_per_node=int(card["node"]["num_gpus_per_node"]),
            flop_s=rates,
        )

    def _device(self, gpu: str) -> str:
        """Returns the device name that most of the GPU's GEMM files carry."""
        import pyarrow.parquet

        names: Counter[str] = Counter()
        for path in sorted((self.systems / "data" / gpu / "gemm").glob("*/*/gemm_perf.parquet")):
            names.update(pyarrow.parquet.read_table(path, columns=["device"])["device"].to_pylist())
        return names.most_common(1)[0][0]

    def current_version(self, gpu: str, backend: str) -> str:
        """Returns the version that the wheel itself answers with for this GPU and backend."""
        slots = _yaml(self.systems / "query_versions.yaml")
        own = slots["overrides"].get(gpu, {}).get(backend)
        return str((own or slots["defaults"][backend])["current"])

    def measured(self, gpu: str, folder: str, backend: str, file: str) -> list[Measured]:
        """Returns the files of one kind, newest version first, none newer than the current one.

        Backends without a version slot of their own (``nccl``) give every version.
        """
        root = self.systems / "data" / gpu / folder / backend
        newest = version_order(self.current_version(gpu, backend)) if backend in BACKENDS else None
        found = [
            Measured(backend, path.parent.name, path, path.relative_to(self.systems).as_posix())
            for path in root.glob(f"*/{file}")
            if newest is None or version_order(path.parent.name) <= newest
        ]
        return sorted(found, key=lambda m: version_order(m.version), reverse=True)


def version_order(version: str) -> tuple[tuple[int, ...], tuple[int, int]]:
    """Returns a sort key: 1.3.0.dev5 < 1.3.0rc9 < 1.3.0rc10 < 1.3.0 < 1.3.0.post1."""
    match = re.fullmatch(r"(\d+(?:\.\d+)*)\.?([a-z]*)(\d*).*", version)
    if match is None or match[2] not in _STAGES:
        raise ValueError(f"version {version!r} is not of the form 1.2.3, 1.2.3rc4 or 1.2.3.post4")
    release = tuple(int(part) for part in match[1].split("."))
    return release, (_STAGES[match[2]], int(match[3] or 0))


def _yaml(path: Path) -> dict[str, Any]:
    import yaml

    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    return loaded
