"""Runs vLLM's engine step by step and says what every step did and what it cost.

Started as a script by a Python that has vLLM and need not have dynosim. It talks JSON lines: orders
on standard input, answers on what standard output was; what vLLM prints goes to standard error.

    {"start": [words of vLLM's command line], "threads": 1}     -> {"facts": {...}}
    {"add": [[name, [prompt token ids], output tokens], ...]}   -> {"added": count}
    {"step": true}    -> {"process_s": ..., "probe_s": ..., "batch": [[name, tokens, tokens
                         computed before], ...], "preempted": [names],
                         "tokens": [[name, count], ...], "finished": [names]}
    {"forget": true}  -> {"forgotten": whether the prefix cache is empty}

Names are whole numbers. ``process_s`` is the processor time of this process, which a busy machine
stretches little; ``probe_s`` that of a fixed piece of work before the step, which tells how fast
the processor is just then. An order that fails is answered by ``{"error": text}``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

PROBE_ROWS, PROBE_FLOATS, PROBE_TIMES = 192, 1 << 20, 8
"""Rows of a square product, floats of a sum, and how often: on one core of a 2023 server a
millisecond of arithmetic and one of memory, since a step has both."""


class SteppedEngine:
    """vLLM's ``LLMEngine`` in this process, its scheduler's decisions noted."""

    def __init__(self, words: list[str], threads: int) -> None:
        import torch
        from vllm.sampling_params import RequestOutputKind, SamplingParams
        from vllm.v1.engine.llm_engine import LLMEngine

        self._engine = LLMEngine.from_engine_args(_arguments(words))
        torch.set_num_threads(threads)
        self._parameters: Callable[..., Any] = SamplingParams
        self._delta = RequestOutputKind.DELTA
        self._probe = _probe(torch)
        self._scheduled: Any = None
        scheduler = self._engine.engine_core.engine_core.scheduler
        schedule = scheduler.schedule

        def noted(*args: Any, **kwargs: Any) -> Any:
            self._scheduled = schedule(*args, **kwargs)
            return self._scheduled

        scheduler.schedule = noted

    def facts(self) -> dict[str, Any]:
        """What the engine settled on."""
        import torch
        from vllm.version import __version__

        config = self._engine.vllm_config
        cache, scheduler = config.cache_config, config.scheduler_config
        return {
            "vllm": __version__,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "block_size": cache.block_size,
            "kv_cache_tokens": cache.num_gpu_blocks * cache.block_size,
            "max_num_seqs": scheduler.max_num_seqs,
            "max_num_batched_tokens": scheduler.max_num_batched_tokens,
            "async_scheduling": str(bool(scheduler.async_scheduling)),
        }

    def add(self, requests: list[tuple[int, list[int], int]]) -> dict[str, Any]:
        """Hands requests to the engine, in this order."""
        for name, prompt, tokens in requests:
            parameters = self._parameters(
                max_tokens=tokens,
                ignore_eos=True,
                temperature=0.0,
                detokenize=False,
                output_kind=self._delta,
            )
            self._engine.add_request(str(name), {"prompt_token_ids": prompt}, parameters)
        return {"added": len(requests)}

    def step(self) -> dict[str, Any]:
        """Runs one step."""
        probe_s = self._probe()
        self._scheduled = None
        begin_s = time.process_time()
        outputs = self._engine.step()
        process_s = time.process_time() - begin_s
        counts = [(int(o.request_id), len(o.outputs[0].token_ids)) for o in outputs]
        preempted = (self._scheduled and self._scheduled.preempted_req_ids) or ()
        return {
            "process_s": process_s,
            "probe_s": probe_s,
            "batch": self._batch(),
            "preempted": sorted(map(_name, preempted)),
            "tokens": [(name, count) for name, count in counts if count],
            "finished": [int(o.request_id) for o in outputs if o.finished],
        }

    def _batch(self) -> list[tuple[int, int, int]]:
        output = self._scheduled
        if output is None:
            return []
        computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        computed |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        tokens = output.num_scheduled_tokens
        return [(_name(i), count, computed[i]) for i, count in tokens.items()]

    def forget(self) -> dict[str, Any]:
        """Empties the prefix cache."""
        return {"forgotten": bool(self._engine.reset_prefix_cache())}


def _arguments(words: list[str]) -> Any:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    own = ["--skip-tokenizer-init", "--disable-log-stats"]
    return EngineArgs.from_cli_args(parser.parse_args([*words, *own]))


def _name(internal: str) -> int:
    """Returns the caller's name of a request; vLLM appends ``-`` and characters of its own."""
    return int(internal.partition("-")[0])


def _probe(torch: Any) -> Callable[[], float]:
    matrix = torch.rand(PROBE_ROWS, PROBE_ROWS)
    floats = torch.rand(PROBE_FLOATS)

    def seconds() -> float:
        begin = time.process_time()
        for _ in range(PROBE_TIMES):
            matrix @ matrix
            floats.sum()
        return time.process_time() - begin

    return seconds


def serve(orders: TextIO, answers: TextIO) -> None:
    """Answers orders until there are none."""
    engine: SteppedEngine | None = None
    for line in orders:
        order = json.loads(line)
        answer: dict[str, Any]
        try:
            if "start" in order:
                engine = SteppedEngine(order["start"], order["threads"])
                answer = {"facts": engine.facts()}
            elif engine is None:
                answer = {"error": "the engine has not been started"}
            elif "add" in order:
                answer = engine.add(order["add"])
            elif "forget" in order:
                answer = engine.forget()
            else:
                answer = engine.step()
        except (Exception, SystemExit) as error:
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
