"""Runs vLLM's engine step by step and says what every step did and what it cost.

Started as a script by a Python that has vLLM and need not have dynosim. It talks JSON lines: orders
on standard input, answers on what standard output was; what vLLM prints goes to standard error.

    {"start": {...arguments of vllm's EngineArgs...}, "threads": 1, "probe": true}
                              -> {"facts": {...}}
    {"add": [[name, [prompt token ids], output tokens], ...]}     -> {"added": count}
    {"step": true}            -> {"process_s": ..., "wall_s": ..., "probe_s": ..., "batch": [[name,
                                 computed tokens, tokens], ...], "preempted": [names],
                                 "tokens": {name: count}, "finished": [names]}
    {"forget": true}          -> {"forgotten": whether all blocks of the prefix cache are free}

Names are strings. ``process_s`` is the processor time of this process, which a busy machine does not
stretch; ``probe_s`` that of a fixed piece of work before the step, which tells how fast the
processor was just then. An order that fails is answered by ``{"error": text}``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

PROBE_ROWS, PROBE_MOVED = 192, 1 << 20
"""A square product's rows and the floats that a sum reads: about 1 ms each on a 2023 server core,
one for arithmetic and one for memory, as a step has both."""


class SteppedEngine:
    """vLLM's ``LLMEngine`` in this process, its scheduler's decisions noted."""

    def __init__(self, arguments: dict[str, Any], threads: int, probe: bool) -> None:
        import torch
        from vllm.engine.arg_utils import EngineArgs
        from vllm.sampling_params import RequestOutputKind, SamplingParams
        from vllm.v1.engine.llm_engine import LLMEngine

        torch.set_num_threads(threads)
        self._engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
        self._parameters: Callable[..., Any] = SamplingParams
        self._delta = RequestOutputKind.DELTA
        self._probe = _probe(torch) if probe else None
        self._scheduled: Any = None
        scheduler = self._engine.engine_core.engine_core.scheduler
        schedule = scheduler.schedule

        def noted(*args: Any, **kwargs: Any) -> Any:
            self._scheduled = schedule(*args, **kwargs)
            return self._scheduled

        scheduler.schedule = noted

    def facts(self) -> dict[str, float | str]:
        """What the engine settled on."""
        import torch
        from vllm.version import __version__

        config = self._engine.vllm_config
        blocks, size = config.cache_config.num_gpu_blocks, config.cache_config.block_size
        return {
            "vllm": __version__,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "num_gpu_blocks": blocks,
            "block_size": size,
            # One block is the null block, which no request gets; vLLM's log counts it.
            "kv_cache_tokens": blocks * size,
            "max_num_seqs": config.scheduler_config.max_num_seqs,
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
            "async_scheduling": str(bool(config.scheduler_config.async_scheduling)),
        }

    def add(self, requests: list[tuple[str, list[int], int]]) -> dict[str, Any]:
        """Hands requests to the engine, in this order."""
        for name, prompt, tokens in requests:
            parameters = self._parameters(
                max_tokens=tokens,
                ignore_eos=True,
                temperature=0.0,
                detokenize=False,
                output_kind=self._delta,
            )
            self._engine.add_request(name, {"prompt_token_ids": prompt}, parameters)
        return {"added": len(requests)}

    def step(self) -> dict[str, Any]:
        """Runs one step."""
        probe_s = self._probe() if self._probe else None
        self._scheduled = None
        wall, process = time.perf_counter(), time.process_time()
        outputs = self._engine.step()
        process_s, wall_s = time.process_time() - process, time.perf_counter() - wall
        counts = {o.request_id: len(o.outputs[0].token_ids) for o in outputs}
        return {
            "process_s": process_s,
            "wall_s": wall_s,
            "probe_s": probe_s,
            "batch": self._batch(),
            "preempted": sorted(map(_name, self._scheduled.preempted_req_ids or ()))
            if self._scheduled
            else [],
            "tokens": {name: count for name, count in counts.items() if count},
            "finished": [o.request_id for o in outputs if o.finished],
        }

    def _batch(self) -> list[tuple[str, int, int]]:
        """Returns name, tokens computed before and tokens of everybody in the step."""
        output = self._scheduled
        if output is None:
            return []
        computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        computed |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        tokens = output.num_scheduled_tokens
        return [(_name(i), computed[i], count) for i, count in tokens.items()]

    def forget(self) -> dict[str, Any]:
        """Empties the prefix cache."""
        return {"forgotten": bool(self._engine.reset_prefix_cache())}


def _name(internal: str) -> str:
    """Returns the caller's name of a request; vLLM appends ``-`` and characters of its own."""
    return internal.rpartition("-")[0] or internal


def _probe(torch: Any) -> Callable[[], float]:
    matrix = torch.rand(PROBE_ROWS, PROBE_ROWS)
    moved = torch.rand(PROBE_MOVED)

    def seconds() -> float:
        begin = time.process_time()
        for _ in range(8):
            matrix @ matrix
            moved.sum()
        return time.process_time() - begin

    return seconds


def serve(orders: TextIO, answers: TextIO) -> None:
    """Answers orders until there are none."""
    engine: SteppedEngine | None = None
    for line in orders:
        order = json.loads(line)
        try:
            if "start" in order:
                engine = SteppedEngine(order["start"], order["threads"], order["probe"])
                answer = {"facts": engine.facts()}
            elif engine is None:
                answer = {"error": "the engine has not been started"}
            elif "add" in order:
                answer = engine.add(order["add"])
            elif "forget" in order:
                answer = engine.forget()
            else:
                answer = engine.step()
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer, separators=(",", ":")) + "\n")
        answers.flush()


def main() -> None:
    """Keeps the answers' channel for this protocol alone and serves."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
