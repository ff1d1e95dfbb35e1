"""From engine arguments to names looked up and defaults filled in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from dynosim.hardware_models.backends import Backend, get_backend
from dynosim.hardware_models.calibration.overheads import Calibration, calibration_for
from dynosim.hardware_models.data_parallel import data_parallel_rules
from dynosim.hardware_models.engine_args import EngineArgs, KvCacheDtype
from dynosim.hardware_models.errors import UserError
from dynosim.hardware_models.gpus import Gpu, get_gpu
from dynosim.hardware_models.llm.architecture import LlmArchitecture
from dynosim.hardware_models.llm.catalog import get_model
from dynosim.hardware_models.llm.quantization import NO_QUANTIZATION, online_quantization
from dynosim.hardware_models.memory_share import default_share
from dynosim.hardware_models.speculation import Speculation, resolve_speculation

T = TypeVar("T")
N = TypeVar("N")

_SWITCHES = {
    "block_size": "block_size",
    "enable_prefix_caching": "enable_prefix_caching",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "cuda_graph_padding": "graph_padding",
    "async_scheduling": "asynchronous_scheduling",
}
"""Arguments that a backend has a figure for, on any GPU and with any model."""


@dataclass(frozen=True, kw_only=True)
class ResolvedEngine:
    """Engine arguments with the backend's defaults in place of None, and the cards they name.

    ``backend`` has the figures of ``calibration`` already; ``speculation`` is None where the engine
    does not speculate.
    """

    args: EngineArgs
    model: LlmArchitecture
    gpu: Gpu
    backend: Backend
    calibration: Calibration | None = None
    speculation: Speculation | None = None

    @property
    def ranks_in_step(self) -> int:
        """Data-parallel ranks that step together, as they share experts; 1 where none do."""
        return self.args.data_parallel_size if self.model.is_moe else 1

    @property
    def expert_gpus(self) -> int:
        """GPUs that the experts of a layer are spread or cut over."""
        return self.args.tensor_parallel_size * self.ranks_in_step

    @property
    def gathers_mlp(self) -> bool:
        """Whether data-parallel ranks bring their tokens together for dense and shared MLPs too."""
        return self.ranks_in_step > 1 and data_parallel_rules(self.backend.name).gathers_mlp

    @property
    def mlp_gpus(self) -> int:
        """GPUs that dense and shared MLPs are cut over."""
        return self.expert_gpus if self.gathers_mlp else self.args.tensor_parallel_size

    @property
    def block_size(self) -> int:
        """Tokens in one KV-cache block."""
        return self.args.block_size or self.backend.block_size


@lru_cache(maxsize=4096)
def resolve_engine(args: EngineArgs) -> ResolvedEngine:
    """Returns the engine that ``args`` describe, with every None filled in.

    Limits, the KV block and what is switched on come from the backend at its version and GPU,
    ``max_model_len``, ``quantization`` and the dtype of the KV cache from the model. Raises
    UserError, located by argument, for unknown names and for a ``max_model_len`` beyond what the
    model was made for.
    """
    gpu = _with_own_tables(_located("gpu", get_gpu, args.gpu), args.kernel_tables)
    model = quantized(_located("model", get_model, args.model), args.quantization)
    backend = get_backend(args.backend, args.backend_version, gpu)
    calibration = _located(
        "calibration", lambda name: calibration_for(backend, gpu, name), args.calibration
    )
    if calibration is not None:
        backend = backend.with_figures(calibration.figures)
    args = _with_switches(args, backend)
    backend = replace(backend, asynchronous_scheduling=bool(args.async_scheduling))
    longest = model.max_position_embeddings
    if args.max_model_len is not None and args.max_model_len > longest:
        raise UserError(
            f"{args.max_model_len:,} tokens, but {model.name} was made for {longest:,}",
            where="max_model_len",
            hint=f"at most {longest}",
        )
    filled = replace(
        args,
        model=model.name,
        gpu=gpu.key,
        backend=backend.name,
        backend_version=backend.version,
        quantization=model.quantization.method,
        kv_cache_dtype=_kv_cache_dtype(args, model),
        max_model_len=args.max_model_len or longest,
        max_num_batched_tokens=args.max_num_batched_tokens or _token_budget(args, model, backend),
    )
    share = args.gpu_memory_utilization or backend.gpu_memory_utilization
    if share is None:
        share = default_share(filled, model, gpu, backend)
    filled = replace(filled, gpu_memory_utilization=share)
    # vLLM never holds more sequences than tokens in a step.
    most = filled.max_num_batched_tokens or backend.max_num_batched_tokens
    seqs = args.max_num_seqs or min(backend.max_num_seqs, most)
    return ResolvedEngine(
        args=replace(filled, max_num_seqs=seqs),
        model=model,
        gpu=gpu,
        backend=backend,
        calibration=calibration,
        speculation=resolve_speculation(filled, model),
    )


def _with_switches(args: EngineArgs, backend: Backend) -> EngineArgs:
    own = {name: getattr(backend, figure) for name, figure in _SWITCHES.items()}
    return replace(
        args, **{name: value for name, value in own.items() if getattr(args, name) is None}
    )


def quantized(model: LlmArchitecture, method: str | None) -> LlmArchitecture:
    """Returns the model as it is served with ``--quantization method``.

    None and the checkpoint's own method change nothing; ``fp8``, ``bitsandbytes`` and
    ``experts_int8`` quantise an unquantised checkpoint while loading. Raises UserError otherwise.
    """
    own = model.quantization.method
    wanted = (method or own).replace("_marlin", "").replace("_", "-").removesuffix("-fp4")
    if wanted == own.replace("_", "-"):
        return model
    if own != NO_QUANTIZATION:
        raise UserError(
            f"{method!r}, but the checkpoint {model.name} is quantised with {own!r}",
            where="quantization",
            hint="leave it out, or name an unquantised checkpoint",
        )
    return replace(
        model, quantization=online_quantization(wanted.replace("-", "_"), model.base_dtype)
    )


def _with_own_tables(gpu: Gpu, folder: str | None) -> Gpu:
    """Returns the GPU with the tables in ``folder``; UserError unless measured on such a GPU."""
    if folder is None:
        return gpu
    from dynosim.hardware_models.timing.own_tables import own_tables

    tables = _located("kernel_tables", own_tables, folder)
    if tables.gpu != gpu.key:
        raise UserError(
            f"measured on {tables.gpu}, but the engine runs on {gpu.key}",
            where="kernel_tables",
            hint=f"tables of {tables.gpu} stand in {tables.folder}",
        )
    return replace(gpu, own_tables=tables.folder)


def _located(where: str, look_up: Callable[[N], T], name: N) -> T:
    try:
        return look_up(name)
    except UserError as error:
        raise error.at(where) from None


def _token_budget(args: EngineArgs, model: LlmArchitecture, backend: Backend) -> int:
    """The backend's budget; vLLM's without chunked prefill is at least a whole prompt."""
    budget = backend.max_num_batched_tokens
    if model.is_moe and data_parallel_rules(backend.name).limits_are_shared:
        budget //= args.data_parallel_size
    if args.enable_chunked_prefill or backend.name != "vllm":
        return budget
    longest = args.max_model_len or model.max_position_embeddings
    return max(budget, longest)


def _kv_cache_dtype(args: EngineArgs, model: LlmArchitecture) -> KvCacheDtype:
    """``auto`` becomes fp8 where the checkpoint asks for it, else stays: the model's own dtype."""
    if args.kv_cache_dtype == "auto" and model.quantization.kv_cache == "fp8":
        return "fp8"
    return args.kv_cache_dtype
