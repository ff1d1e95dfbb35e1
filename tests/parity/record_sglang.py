"""Records what SGLang's own scheduler does with random workloads, step by step.

An opt-in job of some minutes, run in an environment that holds PyTorch (any build) and neither
SGLang's dependencies nor this project, over the unpacked wheel:

    pip download sglang==0.5.14 --no-deps && python -m zipfile -e sglang-*.whl SOURCE
    python tests/parity/record_sglang.py SOURCE tests/parity/data/sglang

With a third argument, a seed, it records other workloads (see ``DYNOSIM_PARITY_DATA``).

SGLang's scheduler, batch, admission policy, radix cache, allocator and processing of results run as
they are. All else that they import (kernels, models, processes, metrics, command line) is replaced
by names that do nothing, and its model by one that samples a token for every request of a batch
whose prompt is done. The loop is that of the scheduler without overlap: form, run, process. Every
step takes one unit of time; a request arrives before the step that starts at its time.
"""

from __future__ import annotations

import gzip
import importlib.machinery
import json
import sys
from array import array
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from sglang_workloads import Record, all_workloads

VERSION = "0.5.14"
FORMAT = 1

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


# --- SGLang without what it stands on ---------------------------------------------------------


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


# --- one scheduler ----------------------------------------------------------------------------


class RequestSlots:
    """Which request's tokens lie where."""

    device = "cpu"

    def __init__(self, size: int, longest: int) -> None:
        self.req_to_token = torch.zeros((size + 1, longest), dtype=torch.int32)
        self._free = list(range(1, size + 1))

    def write(self, where: Any, values: Any) -> None:
        self.req_to_token[where] = values

    def available_size(self) -> int:
        return len(self._free)

    def alloc(self, requests: list[Any]) -> list[int]:
        for request in requests:
            if request.req_pool_idx is None:
                request.req_pool_idx = self._free.pop(0)
        return [request.req_pool_idx for request in requests]

    def free(self, request: Any) -> None:
        self._free.append(request.req_pool_idx)
        request.req_pool_idx = None


def make_scheduler(options: Record) -> Any:
    """Returns SGLang's scheduler with the workload's options and nothing behind it."""
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.managers.schedule_policy import SchedulePolicy
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.managers.scheduler_components import new_token_ratio_tracker
    from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
    from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.chunk_cache import ChunkCache
    from sglang.srt.mem_cache.radix_cache import RadixCache

    class AloneScheduler(Scheduler):  # type: ignore[misc]
        """Has no clients that could abort, and no remote cache."""

        def _maybe_prepare_ngram_embedding(self, batch: Any) -> Any:
            return batch

        def _prefetch_kvcache(self, request: Any) -> None:
            pass

        _abort_on_running_timeout = _abort_on_waiting_timeout = lambda self: None

    chunked = options["enable_chunked_prefill"]
    tokens = options["max_num_batched_tokens"]
    ARGS.pp_max_micro_batch_size = options["max_num_seqs"]
    ARGS.schedule_conservativeness = options["schedule_conservativeness"]
    scheduler = object.__new__(AloneScheduler)
    vars(scheduler).update(SWITCHED_OFF)
    slots = RequestSlots(options["max_num_seqs"], options["max_model_len"] + 1)
    page = ARGS.page_size = scheduler.page_size = options["block_size"]
    pool = options["num_blocks"] * page
    if page == 1:
        allocator = TokenToKVPoolAllocator(pool, torch.float16, "cpu", None, False)
    else:
        allocator = PagedTokenToKVPoolAllocator(pool, page, torch.float16, "cpu", None, False)
    kind = RadixCache if options["enable_prefix_caching"] else ChunkCache
    tree = kind(
        CacheInitParams(
            disable=False,
            req_to_token_pool=slots,
            token_to_kv_pool_allocator=allocator,
            page_size=page,
        )
    )
    tracker = new_token_ratio_tracker.NewTokenRatioTracker
    vars(scheduler).update(
        chunked_prefill_size=tokens if chunked else None,
        dp_attn_adapter=SimpleNamespace(
            maybe_prepare_mlp_sync_batch=lambda batch, need_sync=None: batch
        ),
        grammar_manager=SimpleNamespace(has_waiting_grammars=lambda: False),
        is_mixed_chunk=options["enable_mixed_chunk"],
        max_prefill_tokens=16384 if chunked else tokens,
        max_running_requests=options["max_num_seqs"],
        model_config=MODEL,
        new_token_ratio_tracker=tracker.from_server_args(ARGS),
        policy=SchedulePolicy(options["policy"], tree, False, False, True),
        req_to_token_pool=slots,
        running_batch=ScheduleBatch(reqs=[], batch_is_full=False),
        server_args=ARGS,
        spec_algorithm=SimpleNamespace(is_none=lambda: True, is_dflash=lambda: False),
        token_to_kv_pool_allocator=allocator,
        tree_cache=tree,
        waiting_queue=[],
    )
    return scheduler


MODEL = SimpleNamespace(vocab_size=1 << 60, is_encoder_decoder=False, think_end_id=None)
SWITCHED_OFF = {
    "_pending_chunked_abort_req": None,
    "chunked_req": None,
    "cur_batch": None,
    "disaggregation_mode": 0,
    "dllm_config": None,
    "enable_dynamic_chunking": False,
    "enable_fpm": False,
    "enable_hicache_storage": False,
    "enable_hierarchical_cache": False,
    "enable_hisparse": False,
    "enable_lora": False,
    "enable_overlap": False,
    "enable_priority_preemption": False,
    "enable_priority_scheduling": False,
    "forward_ct": 0,
    "ipc_channels": None,
    "is_hybrid_swa": False,
    "last_batch": None,
    "load_inquirer": Quiet(),
    "max_prefill_bs": 0,
    "max_queued_requests": None,
    "metrics_reporter": Counters(),
    "abort_on_priority_when_disabled": False,
    "prefill_delayer": None,
    "priority_scheduling_preemption_threshold": 10,
    "require_mlp_sync": False,
    "truncation_align_size": None,
}


def make_processor(scheduler: Any) -> Any:
    """Returns what takes a batch's sampled tokens in."""
    from sglang.srt.managers.scheduler_components.batch_result_processor import (
        SchedulerBatchResultProcessor,
    )

    return SchedulerBatchResultProcessor(
        is_generation=True,
        disaggregation_mode=0,
        enable_overlap=False,
        enable_overlap_mlx=False,
        server_args=ARGS,
        model_config=MODEL,
        token_to_kv_pool_allocator=scheduler.token_to_kv_pool_allocator,
        tree_cache=scheduler.tree_cache,
        hisparse_coordinator=None,
        req_to_token_pool=scheduler.req_to_token_pool,
        decode_offload_manager=None,
        metrics_collector=None,
        metrics_reporter=Counters(),
        draft_worker=None,
        model_worker=None,
        logprob_result_processor=None,
        output_streamer=Quiet(),
        abort_request=None,
    )


def prompt_token_ids(workload: Record, index: int) -> list[int]:
    """Returns token ids that two prompts share exactly as far as they share units."""
    size = workload["unit_tokens"]
    tokens = [10 + unit for unit in workload["units"][index] for _ in range(size)]
    private = 1_000_000 + index
    return tokens + [private] * (workload["prompt_tokens"][index] - len(tokens))


def make_request(workload: Record, index: int) -> Any:
    """Returns the request; its id is its place in the workload."""
    from sglang.srt.managers.schedule_batch import Req

    sampling = SimpleNamespace(
        max_new_tokens=workload["output_tokens"][index],
        ignore_eos=False,
        custom_params=None,
        stop_strs=[],
        stop_regex_strs=[],
        stop_token_ids=None,
    )
    ids = array("q", prompt_token_ids(workload, index))
    return Req(index, "", ids, sampling, vocab_size=1 << 60)


# --- recording --------------------------------------------------------------------------------


class StepRecorder:
    """Drives one scheduler and notes every step; equal neighbours are noted once, with a count."""

    def __init__(self, workload: Record) -> None:
        self._workload = workload
        self._scheduler = make_scheduler(workload["options"])
        self._processor = make_processor(self._scheduler)
        self._requests = [make_request(workload, i) for i in range(len(workload["units"]))]
        self._unfinished = 0
        self.rows: list[list[Any]] = []

    def run(self) -> list[list[Any]]:
        """Returns rows of [repeats, tokens, hits, preempted, finished] until all is done.

        ``tokens`` is [request, tokens, ...], ``hits`` is [request, cached tokens, ...] of those
        that entered in the step. Time in which nothing is waiting or running has no rows.
        """
        now, arrived = 0, 0
        arrivals = self._workload["arrival_step"]
        while arrived < len(arrivals) or self._unfinished:
            if not self._unfinished:
                now = max(now, arrivals[arrived])
                self._idle()
            while arrived < len(arrivals) and arrivals[arrived] <= now:
                self._scheduler.waiting_queue.append(self._requests[arrived])
                arrived += 1
                self._unfinished += 1
            if self._step():
                now += 1
        return self.rows

    def _idle(self) -> None:
        """Does what the loop does over and over while there is no work."""
        scheduler = self._scheduler
        assert not scheduler.get_next_batch_to_run(), "an idle scheduler formed a batch"
        scheduler.last_batch = None
        scheduler.new_token_ratio_tracker.reset()

    def _step(self) -> bool:
        scheduler = self._scheduler
        retractions = [request.retraction_count for request in self._requests]
        scheduler.cur_batch = batch = scheduler.get_next_batch_to_run()
        if not batch:
            # All that ran have ended, which is noticed only now.
            assert scheduler.last_batch, "the scheduler is stuck"
            scheduler.last_batch = None
            return False
        preempted = [i for i, r in enumerate(self._requests) if r.retraction_count > retractions[i]]
        tokens, hits = self._batch_facts(batch)
        ran = list(batch.reqs)
        self._process(batch)
        scheduler.last_batch = batch
        finished = sorted(request.rid for request in ran if request.finished())
        self._unfinished -= len(finished)
        self._note([tokens, hits, preempted, finished])
        return True

    def _batch_facts(self, batch: Any) -> tuple[list[int], list[int]]:
        if batch.forward_mode.is_decode():
            return [value for request in batch.reqs for value in (request.rid, 1)], []
        tokens: list[int] = []
        hits: list[int] = []
        for request, prefix, count in zip(
            batch.reqs, batch.prefix_lens, batch.extend_lens, strict=True
        ):
            tokens += [request.rid, count]
            if request.extend_batch_idx == 1 and request not in (batch.decoding_reqs or ()):
                hits += [request.rid, prefix]
        return tokens, hits

    def _process(self, batch: Any) -> None:
        # No two requests generate the same token, so that nobody else can hit it.
        sampled = torch.tensor([2_000_000 + request.rid for request in batch.reqs])
        result = SimpleNamespace(
            copy_done=None,
            routed_experts_output=None,
            indexer_topk_output=None,
            logits_output=None,
            next_token_ids=sampled,
            extend_input_len_per_req=None,
            extend_logprob_start_len_per_req=None,
            can_run_cuda_graph=True,
            num_correct_drafts=0,
        )
        if batch.forward_mode.is_decode():
            self._processor.process_batch_result_decode(batch, result)
        else:
            self._processor.process_batch_result_prefill(batch, result)

    def _note(self, facts: list[Any]) -> None:
        if self.rows and self.rows[-1][1:] == facts and not any(facts[1:]):
            self.rows[-1][0] += 1
        else:
            self.rows.append([1, *facts])


def runs(path: list[int]) -> list[int]:
    """Returns [first, count, ...] of the runs of consecutive numbers in ``path``."""
    found: list[int] = []
    for unit in path:
        if found and sum(found[-2:]) == unit:
            found[-1] += 1
        else:
            found += [unit, 1]
    return found


def main(source: Path, folder: Path, seed: str = "") -> None:
    """Writes one file per group of workloads; those that SGLang fails at are left out."""
    sys.meta_path.insert(0, Loader(source))
    stand_in()
    groups: dict[str, list[Record]] = {}
    for number, workload in enumerate(all_workloads(seed)):
        try:
            rows = StepRecorder(workload).run()
        except RuntimeError as error:
            print(number, workload["group"], str(error).splitlines()[0], flush=True)
            continue
        record = workload | {"units": [runs(path) for path in workload["units"]], "rows": rows}
        groups.setdefault(workload["group"], []).append(record)
        print(number, workload["group"], sum(row[0] for row in rows), flush=True)
    for group, records in groups.items():
        data = {"format": FORMAT, "sglang": VERSION, "workloads": records}
        text = json.dumps(data, separators=(",", ":"))
        # No time stamp inside: the same recording gives the same bytes.
        with open(folder / f"{group}.json.gz", "wb") as file:
            file.write(gzip.compress(text.encode(), compresslevel=9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
