"""Readers of upstream's collective tables: all-reduce, NCCL, expert all-to-all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynosim.hardware_models.build_data.rows import Rows
from dynosim.hardware_models.build_data.system import System
from dynosim.hardware_models.timing.tables import FAMILY_KEYS

Raw = dict[str, NDArray[Any]]
Reader = Callable[[Raw, System], Rows]

DEEPEP_SMS = 20
"""Streaming multiprocessors DeepEP gives its normal kernels by default (``Buffer.num_sms``)."""

_ELEMENT_BYTES = {"bfloat16": 2, "half": 2, "int8": 1}


def _message_bytes(raw: Raw, dtype: str) -> NDArray[np.int64]:
    """Returns the message in bytes.

    Upstream counts elements: NCCL moves n int8 in the time of n/2 half, and the custom all-reduce
    of n bfloat16 takes as long as NCCL's of n half where both fall back to the same algorithm.
    """
    size = np.array([_ELEMENT_BYTES[name] for name in raw[dtype].tolist()])
    in_bytes: NDArray[np.int64] = raw["message_size"].astype(np.int64) * size
    return in_bytes


def allreduce(raw: Raw, system: System) -> Rows:
    """Returns tensor-parallel all-reduce, by how it is launched: CUDA graph, eager, or unsaid."""
    launch = np.full(len(raw["latency"]), "default", dtype="U7")
    for name in ("graph", "eager"):
        launch[np.char.endswith(raw["kernel_source"], f"_{name}")] = name
    columns = {
        "allreduce_dtype": raw["allreduce_dtype"],
        "launch": launch,
        "num_gpus": raw["num_gpus"].astype(np.int64),
        "message_bytes": _message_bytes(raw, "allreduce_dtype"),
    }
    return Rows(columns, raw["latency"] * 1e-3)


def nccl(raw: Raw, system: System) -> Rows:
    columns = {
        "op": raw["op_name"],
        "nccl_dtype": raw["nccl_dtype"],
        "num_gpus": raw["num_gpus"].astype(np.int64),
        "message_bytes": _message_bytes(raw, "nccl_dtype"),
    }
    return Rows(columns, raw["latency"] * 1e-3)


def _alltoall(latency_s: NDArray[np.float64], **columns: Any) -> Rows:
    """Returns the rows; each of ``columns`` is a column, or one text for all rows."""
    full = {k: np.full(len(latency_s), v) if isinstance(v, str) else v for k, v in columns.items()}
    ordered = {key: full[key] for key in FAMILY_KEYS["alltoall"]}
    return Rows(
        {k: v if v.dtype.kind == "U" else v.astype(np.int64) for k, v in ordered.items()},
        latency_s.astype(np.float64),
    )


def moe_alltoall(raw: Raw, system: System) -> Rows:
    """Returns dispatch and combine as vLLM and TensorRT-LLM time them, in microseconds upstream."""
    same = ("phase", "comm_dtype", "ep_size", "hidden_size", "topk", "num_experts", "num_tokens")
    return _alltoall(
        raw["latency"] * 1e-6,
        comm_backend=np.char.replace(raw["comm_backend"], "trtllm_", ""),
        **{key: raw[key] for key in same},
    )


def _deepep(raw: Raw, system: System, backend: str, phase: str, latency_us: Any) -> Rows:
    return _alltoall(
        latency_us * 1e-6,
        comm_backend=backend,
        phase=phase,
        comm_dtype="default",
        ep_size=raw["node_num"] * system.gpus_per_node,
        hidden_size=raw["hidden_size"],
        topk=raw["num_topk"],
        num_experts=raw["num_experts"],
        num_tokens=raw["num_token"],
    )


def deepep_low_latency(phase: str) -> Reader:
    """Returns the reader of SGLang's DeepEP low-latency kernels, in microseconds upstream."""
    return lambda raw, system: _deepep(raw, system, "deepep_ll", phase, raw[f"{phase}_avg_t_us"])


def deepep_normal(phase: str) -> Reader:
    """Returns the reader of SGLang's DeepEP normal kernels, in microseconds upstream.

    A call is its notification (the exchange of counts) and its transmission.
    """

    def read(raw: Raw, system: System) -> Rows:
        latency_us = raw[f"{phase}_transmit_us"] + raw[f"{phase}_notify_us"]
        return _deepep(raw, system, "deepep_ht", phase, latency_us)

    return read


def nvlink_alltoall(raw: Raw, system: System) -> Rows:
    """Returns TensorRT-LLM's all-to-all over multi-node NVLink, in milliseconds upstream."""
    kernels = {"NVLinkOneSided": "nvlink_one_sided", "NVLinkTwoSided": "nvlink_two_sided"}
    return _alltoall(
        raw["latency"] * 1e-3,
        comm_backend=np.array([kernels[name] for name in raw["kernel_source"].tolist()]),
        phase=np.char.replace(raw["op_name"], "alltoall_", ""),
        comm_dtype=raw["moe_dtype"],
        ep_size=raw["moe_ep_size"],
        **{key: raw[key] for key in ("hidden_size", "topk", "num_experts", "num_tokens")},
    )
