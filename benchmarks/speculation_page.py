"""Writes docs/speculative-decoding.md: where drafting pays, and how far that was measured.

python benchmarks/speculation_page.py > docs/speculative-decoding.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dynosim.hardware_models.engine_args import EngineArgs
from dynosim.hardware_models.memory.plan import plan_memory
from dynosim.hardware_models.resolve import ResolvedEngine, resolve_engine
from dynosim.hardware_models.timing.speculation import SpeculativeStepTimer
from dynosim.hardware_models.timing.step_timer import StepTimer
from dynosim.sim.deployment import Deployment
from dynosim.sim.simulate import simulate
from dynosim.sim.workload.build import build_workload
from dynosim.sim.workload.spec import WorkloadSpec

BATCHES = (1, 4, 16, 32, 64, 128, 256)
RATES = (0.0, 0.5, 0.7, 0.9)
DRAFTS = (1, 3, 5)
CONTEXT_TOKENS = 1000
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SHAPES = (
    ("Llama 3.1 8B, one H100", {"model": LLAMA, "gpu": "h100"}),
    (
        "Llama 3.3 70B, four H200",
        {"model": "meta-llama/Llama-3.3-70B-Instruct", "gpu": "h200", "tensor_parallel_size": 4},
    ),
)
METHODS = (
    ("eagle3", LLAMA, "h100", 1, {"num_speculative_tokens": 3}),
    ("eagle", LLAMA, "h100", 1, {"num_speculative_tokens": 3}),
    ("ngram", LLAMA, "h100", 1, {"num_speculative_tokens": 3}),
    (
        "draft_model",
        "Qwen/Qwen3-32B",
        "h100",
        2,
        {"num_speculative_tokens": 3, "speculative_model": "Qwen/Qwen3-0.6B"},
    ),
    ("mtp", "deepseek-ai/DeepSeek-V3", "h200", 8, {"num_speculative_tokens": 1}),
)


class Measured(NamedTuple):
    """One published point of inference-perf's KubeCon demo: requests/s, TPOT in ms."""

    request_rate: float
    tpot_ms: float


KUBECON = (
    Measured(1.0, 10.73),
    Measured(18.16, 11.75),
    Measured(35.33, 13.57),
    Measured(52.49, 19.57),
    Measured(69.65, 28.74),
    Measured(86.81, 29.05),
)


def resolved(**args: Any) -> ResolvedEngine:
    """Returns the engine of these arguments."""
    return resolve_engine(EngineArgs(**args))


def step_s(engine: ResolvedEngine, batch: int, context: int = CONTEXT_TOKENS) -> float:
    """Returns seconds of a decode-only step of ``batch`` sequences."""
    timer = StepTimer.compile(engine)
    if isinstance(timer, SpeculativeStepTimer):
        return float(timer.decode_steps_s(batch, np.array([batch * context]))[0])
    return timer.decode_line(batch, batch * context)[0]


def gain(args: dict[str, Any], batch: int, context: int = CONTEXT_TOKENS, **how: Any) -> float:
    """Returns the tokens per second with drafts over those without."""
    speculating = resolved(**args, **how)
    assert speculating.speculation is not None
    length = speculating.speculation.mean_acceptance_length
    plain_s = step_s(resolved(**args), batch, context)
    return length * plain_s / step_s(speculating, batch, context)


def gain_tables() -> Iterator[str]:
    """Yields, per shape, gains by drafts and rate of acceptance over batches."""
    for title, args in SHAPES:
        yield f"\n### {title}, EAGLE-3\n"
        yield "| drafts | acceptance | " + " | ".join(f"batch {b}" for b in BATCHES) + " |"
        yield "|---:|---:|" + "---:|" * len(BATCHES)
        for drafts in DRAFTS:
            for rate in RATES:
                how = {
                    "speculative_method": "eagle3",
                    "num_speculative_tokens": drafts,
                    "speculative_acceptance_rate": rate,
                }
                gains = " | ".join(f"{gain(args, b, **how):.2f}" for b in BATCHES)
                yield f"| {drafts} | {rate:g} | {gains} |"


def method_table() -> Iterator[str]:
    """Yields what each method costs and gains with its own default acceptance."""
    batches = (1, 16, 64, 256)
    heads = " | ".join(f"batch {b}" for b in batches)
    yield f"| method | model | drafts | tokens a verification | weights | KV cache | {heads} |"
    yield "|---|---|---:|---:|---:|---:|" + "---:|" * len(batches)
    for method, model, gpu, tp, extra in METHODS:
        args = {"model": model, "gpu": gpu, "tensor_parallel_size": tp}
        how = {"speculative_method": method, **extra}
        speculating = resolved(**args, **how)
        assert speculating.speculation is not None
        plain, drafted = plan_memory(resolved(**args)), plan_memory(speculating)
        gib = (drafted.weights_bytes - plain.weights_bytes) / 2**30
        kv = drafted.kv_bytes_per_token / plain.kv_bytes_per_token - 1
        gains = " | ".join(f"{gain(args, b, **how):.2f}" for b in batches)
        yield (
            f"| {method} | {model}, {tp} × {speculating.gpu.name.split()[1]} "
            f"| {speculating.speculation.num_tokens} "
            f"| {speculating.speculation.mean_acceptance_length:.2f} "
            f"| +{gib:.2f} GiB | +{kv:.1%} | {gains} |"
        )


def kubecon_table() -> Iterator[str]:
    """Yields measured and simulated TPOT of the KubeCon demo's EAGLE-3 arm."""
    yield "| requests/s | measured TPOT (ms) | simulated TPOT (ms) | difference |"
    yield "|---:|---:|---:|---:|"
    deployment = Deployment(
        model=LLAMA,
        gpu="h100",
        backend_version="0.11.0",
        gpu_memory_utilization=0.9,
        max_model_len=512,
        max_num_seqs=128,
        speculative_method="eagle3",
        num_speculative_tokens=4,
        speculative_acceptance_rates="0.11, 0.015, 0.002, 0",
    )
    for point in KUBECON:
        load = WorkloadSpec(
            random_input_len=74,
            random_prefix_len=128,
            random_output_len=64,
            num_prompts=max(60, int(30 * point.request_rate)),
            request_rate=point.request_rate,
            burstiness=1e6,
        )
        found = simulate(deployment, build_workload(load)).metrics()["mean_tpot_ms"]
        error = found / point.tpot_ms - 1.0
        yield f"| {point.request_rate:g} | {point.tpot_ms:.1f} | {found:.1f} | {error:+.0%} |"


def published_table() -> Iterator[str]:
    """Yields published gains beside ours."""
    llama3 = {"model": "meta-llama/Meta-Llama-3-8B-Instruct", "gpu": "h100"}
    llama31 = {"model": LLAMA, "gpu": "h100"}
    yield "| measured | published gain | ours |"
    yield "|---|---:|---:|"
    for drafts, published in ((2, 1.36), (4, 1.29)):
        ours = gain(llama3, 1, 300, speculative_method="eagle", num_speculative_tokens=drafts)
        yield (
            f"| EAGLE, {drafts} drafts, Llama 3 8B, H100, batch 1 "
            f"([vLLM PR 16035](https://github.com/vllm-project/vllm/pull/16035)) "
            f"| {published:.2f} | {ours:.2f} (fitted) |"
        )
    ours = gain(llama31, 64, 300, speculative_method="eagle3", num_speculative_tokens=3)
    yield (
        "| EAGLE-3, Llama 3.1 8B, batch 64, SGLang "
        f"([paper](https://arxiv.org/abs/2503.01840)) | 1.38 | {ours:.2f} (vLLM, H100, 3 drafts) |"
    )
    deep = {"model": "deepseek-ai/DeepSeek-V3", "gpu": "h200", "tensor_parallel_size": 8}
    ours = gain(deep, 1, speculative_method="mtp", num_speculative_tokens=1)
    yield (
        "| MTP, 1 draft, DeepSeek-V3 "
        f"([report](https://arxiv.org/abs/2412.19437), section 5.4.3) | 1.8 | {ours:.2f} |"
    )


PAGE = """# Speculative decoding

A draft proposes `num_speculative_tokens` tokens, the model verifies all of them in one step, and
keeps those it would have produced itself, plus one of its own. That trades arithmetic for fewer
steps: worth it while a step's time is memory traffic, a loss once it is arithmetic.

```bash
dynosim simulate --model llama-3.1-8b-instruct --gpu h100 --isl 500 --osl 200 \\
    --max-concurrency 8 --speculative-method eagle3 --num-speculative-tokens 3
```

This page is written by `python benchmarks/speculation_page.py`.

## What is modelled

- **Acceptance.** A draft is accepted only if those before it were. Say how often with
  `speculative_acceptance_rate` (one chance for every position) or
  `speculative_acceptance_rates` (as vLLM logs it: "Per-position acceptance rate"); else the
  method's own, in `data/speculation.yaml` with its source. It is a property of model, draft and
  text, and the figure that matters most: measure it on your own traffic. Each verification draws
  from a stream of its own request, so that the same seed accepts the same drafts whatever runs
  beside, under any scheduler limit, in leaps or in steps. An answer is never longer than asked for.
- **Verification.** All operations over tokens, and the head, run over k + 1 tokens a sequence,
  padded to a CUDA graph that holds whole verifications; experts are touched by all of them.
  Attention reads keys and values once; its arithmetic grows, in tiles of whole rows: nothing for
  grouped-query attention with few drafts, all of it for latent attention (MLA).
- **Drafting.** `eagle`, `eagle3`, `mtp`: k passes of one layer and its head, the first over all new
  tokens of the step (so that prefill pays, too). `draft_model`: k passes of that model. `ngram`:
  host time per sequence, and no asynchronous scheduling.
- **Waits.** Between passes, and to read back what was accepted, the GPU waits for the CPU, per
  step and per sequence. Fitted on vLLM 0.8 and 0.11 (below); newer versions may wait less.
- **Memory.** Weights of the draft; its layers' KV cache; and k slots of lookahead a sequence beside
  those of a verification (not for `ngram`). Slots of refused drafts are used again.
- **Scheduling.** A decode takes k + 1 tokens of the step's budget. A sequence that finds less left
  sits the step out and then catches up with one token (vLLM verifies as many drafts as fit).
  Reservations are vLLM's rule for every backend; steps with drafts were not replayed against a real
  scheduler.
- **Metrics.** A step's tokens arrive together. TTFT, E2EL and TPOT (per token) are what they were;
  ITL is the time between chunks, as `vllm bench serve` has it, and so does not fall with the
  tokens in a chunk. `spec_decode_acceptance_length` and its kin are named as there.

`--speculative-method` stands for SGLang's `--speculative-algorithm` (EAGLE, EAGLE3, NGRAM,
STANDALONE; `--speculative-num-steps` k, top-k 1) and for TensorRT-LLM's `speculative_config`
(`decoding_type`, `max_draft_len` k). Refused: pipeline parallelism, and data-parallel ranks that
share experts. Not modelled: trees of drafts, drafts only where an n-gram is found, switching off
under load, memory for one state per draft in hybrid models.

## Methods, each with its default acceptance

{methods}

## Where it pays

Output tokens per second with drafts over those without, decode-only steps at {context:,} tokens of
context a sequence. Below 1 it is a loss; the first line of each block is what nothing accepted
costs.
{gains}

## Against measurements

EAGLE-3 with 4 drafts on random text, which it can hardly guess (acceptance length 1.11 to 1.14, as
follows from TPOT over ITL): Llama 3.1 8B, one H100, vLLM 0.11.0, 200 tokens in and 64 out
([inference-perf, KubeCon demo](https://github.com/kubernetes-sigs/inference-perf/tree/main/demos/kubecon-na-2025)).
The same engine without drafts takes 7.1 ms at 1 request/s and serves 170 requests/s; with them it
saturates at 68. The waits were set by hand with
the first, middle and last points in view; the two others are predictions.

{kubecon}

{published}

AccelMark's `speculative` scenario (vLLM 0.7.3, Llama 3 8B, 100 requests at once, method not stated)
has 0.34 to 0.47 of the throughput without, on A100, A800, H200 and RTX 6000 Ada: a loss at that
batch, as here, and larger than ours; that was vLLM's V0 engine.
"""


def page() -> str:
    """Returns the page."""
    return PAGE.format(
        methods="\n".join(method_table()),
        context=CONTEXT_TOKENS,
        gains="\n".join(gain_tables()),
        kubecon="\n".join(kubecon_table()),
        published="\n".join(published_table()),
    )


if __name__ == "__main__":
    print(page(), end="")
