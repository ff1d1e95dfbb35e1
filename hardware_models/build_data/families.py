"""How upstream's parquet columns become the key columns of each op family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynosim.hardware_models.build_data import communication, quality
from dynosim.hardware_models.build_data.quality import foreign_device
from dynosim.hardware_models.build_data.rows import Rows, concatenate
from dynosim.hardware_models.build_data.system import (
    BACKENDS,
    Measured,
    System,
    Wheel,
    version_order,
)
from dynosim.hardware_models.timing.tables import FAMILY_KEYS

Raw = dict[str, NDArray[Any]]
Reader = Callable[[Raw, System], Rows]


@dataclass(frozen=True, kw_only=True)
class Family:
    """One op family and where its rows come from.

    ``files`` maps an upstream file name to its readers; each turns every row into one row. Rows
    whose columns named in ``only`` have another value are left out before. The first
    ``group_keys`` keys name one kernel configuration: rows are accepted, back-filled, rejected
    and substituted by that group. The last ``curve_keys`` keys vary along one curve, which comes
    from one kernel. ``tokens`` names the key that counts tokens in families of weights, whose
    first key is the weights' format.

    ``preferred_kernels`` go before others measured at the same shapes. ``bump_rows`` is the width
    of humps on a curve that are left out. ``shares_kernels`` says that backends take their kernels
    from the same few libraries, so that none is much slower than every other.
    """

    name: str
    folder: str
    files: Mapping[str, tuple[Reader, ...]]
    group_keys: int
    curve_keys: int
    tokens: str | None = None
    backends: tuple[str, ...] = BACKENDS
    only: Mapping[str, str | int] = field(default_factory=dict)
    preferred_kernels: tuple[str, ...] = ()
    bump_rows: int = 0
    shares_kernels: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """Key columns, in order."""
        return FAMILY_KEYS[self.name]

    def versions(self, wheel: Wheel, gpu: str, backend: str) -> list[list[Measured]]:
        """Returns the files to read, grouped by version, newest first."""
        files = [m for f in self.files for m in wheel.measured(gpu, self.folder, backend, f)]
        names = sorted({m.version for m in files}, key=version_order, reverse=True)
        return [[m for m in files if m.version == name] for name in names]

    def read(self, files: list[Measured], system: System) -> tuple[Rows, int]:
        """Returns one version's rows, each shape once, and how many were of another device."""
        parts, foreign = [], 0
        for file in files:
            raw = self._own(read_parquet(file))
            unnamed = np.full(len(raw["kernel_source"]), "")
            elsewhere = foreign_device(raw.get("device", unnamed), system.device)
            foreign += int(elsewhere.sum())
            parts.extend(self._parsed(file, _where(raw, ~elsewhere), system))
        return concatenate(parts).medians(), foreign

    def _own(self, raw: Raw) -> Raw:
        for name, value in self.only.items():
            if name in raw:
                raw = _where(raw, raw[name] == value)
        return raw

    def _parsed(self, file: Measured, raw: Raw, system: System) -> list[Rows]:
        curve = self.keys[: -self.curve_keys]
        parts = [reader(raw, system) for reader in self.files[file.path.name]]
        kernel, first = raw["kernel_source"], self.preferred_kernels
        return [one_kernel_per_curve(part, kernel, curve, first) for part in parts]


def _where(raw: Raw, mask: NDArray[np.bool_]) -> Raw:
    return {key: column[mask] for key, column in raw.items()}


def read_parquet(file: Measured) -> Raw:
    """Returns the file's columns as arrays, text as numpy strings."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(file.path)
    return {name: _array(table.column(name)) for name in table.column_names}


def _array(column: Any) -> NDArray[Any]:
    import pyarrow

    if not pyarrow.types.is_string(column.type) and not pyarrow.types.is_large_string(column.type):
        return np.asarray(column.to_numpy())
    coded = column.combine_chunks().dictionary_encode()
    values: NDArray[Any] = np.asarray(coded.dictionary.to_pylist(), dtype=np.str_)
    return np.asarray(values[coded.indices.to_numpy()])


def one_kernel_per_curve(
    rows: Rows, kernel: NDArray[Any], curve: tuple[str, ...], preferred: tuple[str, ...] = ()
) -> Rows:
    """Returns the rows without the second kernels of a curve that was measured by several.

    Some tables time two attention or expert kernels at the same shapes. An engine runs one of
    them, and a curve put together from both has jumps that no engine shows. That is a
    ``preferred`` one, else the one with the most rows in the file: the one collected as the
    backend's default. Kernels that take turns along a curve, each shape measured once, are the
    backend's own choice and stay.
    """
    names, code, count = np.unique(kernel, return_inverse=True, return_counts=True)
    shape, line = rows.ids(rows.keys), rows.ids(curve)
    pairs = np.unique(np.stack([shape, code]), axis=1)
    contested = np.isin(line, line[np.isin(shape, _repeated(pairs[0]))])
    rank = np.lexsort((names, -count, ~np.isin(names, preferred))).argsort()[code]
    best = np.full(int(line.max(initial=-1)) + 1, len(names))
    np.minimum.at(best, line, rank)
    return rows.take(~contested | (rank == best[line]))


def _repeated(values: NDArray[np.int64]) -> NDArray[np.int64]:
    found, count = np.unique(values, return_counts=True)
    return found[count > 1]


def _renamed(names: Mapping[str, str], scale: float = 1e-3, latency: str = "latency") -> Reader:
    """Returns a reader that only renames: ours -> theirs; ``scale`` turns latency to seconds."""

    def read(raw: Raw, system: System) -> Rows:
        columns = {key: _integer_or_text(raw[name]) for key, name in names.items()}
        return Rows(columns, raw[latency].astype(np.float64) * scale)

    return read


def _integer_or_text(column: NDArray[Any]) -> NDArray[Any]:
    return column if column.dtype.kind == "U" else np.asarray(column, dtype=np.int64)


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _attention(length: str) -> Reader:
    """Returns the reader of dense attention; a file without windows measured full attention."""
    plain = _renamed(
        _same(*(k for k in FAMILY_KEYS["context_attention"][:-1] if k != "window_size"))
    )

    def read(raw: Raw, system: System) -> Rows:
        rows = plain(raw, system)
        window = raw.get("window_size", np.zeros(len(rows), dtype=np.int64)).astype(np.int64)
        columns = {**rows.columns, "window_size": window, length: _attended(raw)}
        keys = (*FAMILY_KEYS["context_attention"][:-1], length)
        return Rows({key: columns[key] for key in keys}, rows.latency_s)

    return read


def _attended(raw: Raw) -> NDArray[np.int64]:
    """Returns tokens attended to: those of this step and those cached before (``step``)."""
    attended: NDArray[np.int64] = raw["isl"].astype(np.int64) + raw["step"].astype(np.int64)
    return attended


def _mla(*dtypes: str, length: str) -> Reader:
    """Returns the reader of latent attention: DeepSeek-V3's shape, per number of heads held."""
    names = {**_same("mla_dtype", "kv_cache_dtype"), **{d: "gemm_type" for d in dtypes}}
    plain = _renamed({**names, **_same("num_heads", "batch_size")})

    def read(raw: Raw, system: System) -> Rows:
        rows = plain(raw, system)
        return Rows({**rows.columns, length: _attended(raw)}, rows.latency_s)

    return read


def _mla_bmm(raw: Raw, system: System) -> Rows:
    """Returns the two batched products around latent decode attention ("pre" and "post")."""
    names = {"bmm_dtype": "bmm_dtype", "op": "op_name", **_same("num_heads", "num_tokens")}
    rows = _renamed(names)(raw, system)
    op = np.char.replace(rows.columns["op"], "mla_gen_", "")
    return Rows({**rows.columns, "op": op}, rows.latency_s)


def _quantise(part: str) -> Reader:
    """Returns the reader of one part of quantising activations: finding scales, or casting."""
    plain = _renamed(_same("k", "m"))

    def read(raw: Raw, system: System) -> Rows:
        rows = plain(raw, system)
        # vLLM's scales are differences of two measurements, in small shapes mere noise: left out.
        seconds = np.where(rows.latency_s < quality.RESOLUTION_S, 0.0, rows.latency_s)
        return Rows({"part": np.full(len(rows), part), **rows.columns}, seconds)

    return read


TRTLLM_GEN_EXPERTS = "moe_torch_flow_min_latency"
"""TensorRT-LLM's ``moe_config.backend: TRTLLM`` in nvfp4. Its deployment guides for DeepSeek-R1 and
gpt-oss take these kernels on Blackwell, "universally faster" than CUTLASS, whose rows are more;
they take the same time as those that vLLM and SGLang call (within 10 %)."""


def _attention_family(name: str, length: str) -> Family:
    files = {f"{name}_perf.parquet": (_attention(length),)}
    return Family(name=name, folder="attention", files=files, group_keys=4, curve_keys=2)


def _mla_family(name: str, file: str, reader: Reader, group_keys: int) -> Family:
    files = {f"{file}_perf.parquet": (reader,)}
    only = {"model": "deepseek-ai/DeepSeek-V3"}
    return Family(
        name=name, folder="mla", files=files, group_keys=group_keys, curve_keys=2, only=only
    )


FAMILIES: tuple[Family, ...] = (
    Family(
        name="gemm",
        folder="gemm",
        files={"gemm_perf.parquet": (_renamed(_same(*FAMILY_KEYS["gemm"])),)},
        group_keys=1,
        curve_keys=1,
        tokens="m",
        bump_rows=3,
        shares_kernels=True,
    ),
    Family(
        name="quantise",
        folder="quantize",
        files={
            "computescale_perf.parquet": (_quantise("scale"),),
            "scale_matrix_perf.parquet": (_quantise("cast"),),
        },
        group_keys=1,
        curve_keys=1,
        # SGLang's rows are unfused PyTorch: casting takes longer there than its whole fp8 GEMM.
        backends=("trtllm", "vllm"),
        only={"quant_dtype": "fp8"},
    ),
    _attention_family("context_attention", "isl"),
    _attention_family("generation_attention", "kv_tokens"),
    Family(
        name="moe",
        folder="moe",
        files={"moe_perf.parquet": (_renamed(_same(*FAMILY_KEYS["moe"])),)},
        group_keys=5,
        curve_keys=1,
        tokens="num_tokens",
        preferred_kernels=(TRTLLM_GEN_EXPERTS,),
        shares_kernels=True,
    ),
    _mla_family("mla_context", "context_mla", _mla(length="isl"), 2),
    _mla_family("mla_generation", "generation_mla", _mla(length="kv_tokens"), 2),
    _mla_family("mla_context_module", "mla_context_module", _mla("gemm_dtype", length="isl"), 3),
    _mla_family(
        "mla_generation_module", "mla_generation_module", _mla("gemm_dtype", length="kv_tokens"), 3
    ),
    Family(
        name="mla_bmm",
        folder="mla_bmm",
        files={"mla_bmm_perf.parquet": (_mla_bmm,)},
        group_keys=2,
        curve_keys=1,
    ),
    Family(
        name="custom_allreduce",
        folder="comm",
        files={"custom_allreduce_perf.parquet": (communication.allreduce,)},
        group_keys=1,
        curve_keys=1,
    ),
    Family(
        name="nccl",
        folder="comm",
        files={"nccl_perf.parquet": (communication.nccl,)},
        group_keys=3,
        curve_keys=1,
        backends=("nccl",),
    ),
    Family(
        name="alltoall",
        folder="comm",
        files={
            "moe_a2a_perf.parquet": (communication.moe_alltoall,),
            "wideep_deepep_ll_perf.parquet": (
                communication.deepep_low_latency("dispatch"),
                communication.deepep_low_latency("combine"),
            ),
            "wideep_deepep_normal_perf.parquet": (
                communication.deepep_normal("dispatch"),
                communication.deepep_normal("combine"),
            ),
            "trtllm_alltoall_perf.parquet": (communication.nvlink_alltoall,),
        },
        group_keys=4,
        curve_keys=1,
        only={"dispatch_sms": communication.DEEPEP_SMS, "combine_sms": communication.DEEPEP_SMS},
    ),
)
