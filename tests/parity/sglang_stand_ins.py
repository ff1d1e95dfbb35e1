"""SGLang without what it stands on: its scheduler runs on a CPU, and all else does nothing.

What ``REAL`` names is SGLang's own code, from the unpacked wheel. Every other module it imports
is empty, and every name in an empty module is :class:`Nothing`; the few that the scheduler does
need are filled in by :func:`stand_in`.
"""

from __future__ import annotations

import importlib.machinery
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

PACKAGES = {
    "sglang",
    "sglang.srt",
    "sglang.srt.managers",
    "sglang.srt.managers.scheduler_components",
    "sglang.srt.mem_cache",
    "sglang.srt.mem_cache.allocator",
}
REAL = {
    "sglang.srt.environ",
    "sglang.srt.managers.schedule_batch",
    "sglang.srt.managers.schedule_policy",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.scheduler_components.batch_result_processor",
    "sglang.srt.managers.scheduler_components.new_token_ratio_tracker",
    "sglang.srt.mem_cache.allocator.base",
    "sglang.srt.mem_cache.allocator.paged",
    "sglang.srt.mem_cache.allocator.token",
    "sglang.srt.mem_cache.base_prefix_cache",
    "sglang.srt.mem_cache.cache_init_params",
    "sglang.srt.mem_cache.chunk_cache",
    "sglang.srt.mem_cache.common",
    "sglang.srt.mem_cache.events",
    "sglang.srt.mem_cache.evict_policy",
    "sglang.srt.mem_cache.radix_cache",
    "sglang.srt.mem_cache.utils",
}
OUTSIDE = {"psutil", "setproctitle", "triton", "zmq"}


class Nothing:
    """Stands for any class, function, decorator or constant that is not needed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]
        return Nothing()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __getitem__(self, key: Any) -> Nothing:
        return Nothing()

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (type("Base", (), {}),)

    def __or__(self, other: Any) -> Any:
        return object

    __ror__ = __or__

    def __bool__(self) -> bool:
        return False


class EmptyModule(ModuleType):
    """A module in which every name is ``Nothing``."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class Loader:
    """Finds SGLang's real modules in the unpacked wheel, and makes up the others."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        root = name.split(".")[0]
        if root != "sglang" and root not in OUTSIDE:
            return None
        if name in REAL:
            return importlib.machinery.PathFinder.find_spec(name, path)
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        if name in PACKAGES:
            spec.submodule_search_locations = [str(self._source / name.replace(".", "/"))]
        return spec

    def create_module(self, spec: Any) -> ModuleType:
        return EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class Mode:
    """A batch's kind."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_extend(self, *args: Any) -> bool:
        return self.name in ("EXTEND", "MIXED")

    def is_decode(self) -> bool:
        return self.name == "DECODE"


class PlainRequest:
    """A request is not one of a diffusion model."""

    def is_dllm(self) -> bool:
        return False

    def init_diffusion_llm(self, *args: Any) -> None:
        self.dllm_config = None


class Quiet:
    """Takes any call and any assignment."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


class Counters(Quiet):
    """Takes reports, too."""

    enable_metrics = False
    num_generated_tokens = 0
    forward_ct_decode = 0


class Kernel:
    """A kernel for the GPU as a function for the CPU."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self._function


def extend(starts: Any, ends: Any, last: Any, pages: Any, out: Any, bound: int, page: int) -> None:
    """Writes where the tokens from ``starts`` to ``ends`` go: on in the last page, then in new."""
    at = new = 0
    for start, end, slot in zip(starts.tolist(), ends.tolist(), last.tolist(), strict=True):
        for position in range(start, end):
            slot = int(pages[new]) * page if position % page == 0 else slot + 1
            new += position % page == 0
            out[at] = slot
            at += 1


def decode(ends: Any, last: Any, pages: Any, out: Any, bound: int, page: int) -> None:
    """Writes where each sequence's last token goes."""
    extend(ends - 1, ends, last, pages, out, bound, page)


def new_pages(seq_lens: Any, page_size: int, prefix_lens: Any = None, decode: bool = False) -> int:
    """Returns how many pages sequences begin with their new tokens."""
    starts = seq_lens - 1 if decode else prefix_lens
    return int((-(-seq_lens // page_size) + (-starts // page_size)).sum())


ARGS = SimpleNamespace(
    attention_backend="torch_native",
    disaggregation_decode_enable_offload_kvcache=False,
    disaggregation_decode_enable_radix_cache=False,
    disaggregation_mode="null",
    enable_hisparse=False,
    enable_mamba_extra_buffer=lambda: False,
    enable_mamba_extra_buffer_lazy=lambda: False,
    enable_metrics=False,
    page_size=1,
    pp_max_micro_batch_size=0,
    prefill_max_requests=None,
    schedule_conservativeness=1.0,
    schedule_low_priority_values_first=True,
    speculative_algorithm=None,
    strip_thinking_cache=False,
)


def stand_in() -> None:
    """Fills in what the scheduler does need of the modules that are left out."""
    set_names(
        "sglang.srt.utils",
        get_bool_env_var=lambda *args, **kwargs: False,
        get_num_new_pages=new_pages,
        next_power_of_2=lambda number: number,
        is_hip=lambda: False,
        is_npu=lambda: False,
        support_triton=lambda *args: False,
    )
    set_names(
        "sglang.srt.utils.common",
        ceil_align=lambda number, page: -(-number // page) * page,
        flatten_arrays_to_pinned_cpu=lambda ids, pin: torch.tensor(list(chain(*ids))),
        is_pin_memory_available=lambda *args: False,
    )
    set_names("sglang.srt.server_args", get_global_server_args=lambda: ARGS)
    modes = {name: Mode(name) for name in ("EXTEND", "DECODE", "MIXED", "IDLE", "DLLM_EXTEND")}
    set_names("sglang.srt.model_executor.forward_batch_info", ForwardMode=SimpleNamespace(**modes))
    set_names(
        "sglang.srt.disaggregation.utils",
        DisaggregationMode=SimpleNamespace(NULL=0, PREFILL=1, DECODE=2),
    )
    set_names(
        "sglang.srt.sampling.sampling_batch_info",
        SamplingBatchInfo=SimpleNamespace(
            from_schedule_batch=lambda *args: SimpleNamespace(
                filter_batch=lambda *args: None,
                merge_batch=lambda *args: None,
                penalizer_orchestrator=SimpleNamespace(is_required=False),
            )
        ),
    )
    set_names("sglang.srt.dllm.mixin.req", ReqDllmMixin=PlainRequest)
    set_names(
        "sglang.srt.observability.req_time_stats", SchedulerReqTimeStats=lambda **kwargs: Quiet()
    )
    set_names("sglang.srt.mem_cache.allocator.swa", SWATokenToKVPoolAllocator=Nothing)
    set_names(
        "sglang.srt.mem_cache.allocator.hisparse", DeepSeekV4HiSparseTokenToKVPoolAllocator=Nothing
    )
    set_names(
        "sglang.srt.mem_cache.triton_ops.allocator",
        alloc_decode_kernel=Kernel(decode),
        alloc_extend_kernel=Kernel(extend),
    )
    set_names("sglang.srt.mem_cache.memory_pool", HybridReqToTokenPool=Nothing)


def set_names(module: str, **names: Any) -> None:
    """Sets names of a left-out module."""
    for name, value in names.items():
        setattr(importlib.import_module(module), name, value)
