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
import json
import sys
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from sglang_stand_ins import ARGS, Counters, Loader, Quiet, stand_in
from sglang_workloads import Record, all_workloads

VERSION = "0.5.14"
FORMAT = 1

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
