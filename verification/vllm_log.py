"""What vLLM says of itself while it starts, read from its log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

# Spellings of vLLM 0.11 to 0.32 (vllm/v1/core/kv_cache_utils.py, v1/engine/core.py,
# compilation/monitor.py, v1/worker/gpu_model_runner.py, model_loader/default_loader.py).
_NUMBER = r"([\d,]+(?:\.\d+)?)"
_LINES: dict[str, tuple[str, Callable[[Iterable[float]], float]]] = {
    "kv_cache_tokens": (rf"KV cache size: {_NUMBER} tokens", min),
    "max_concurrency": (rf"Maximum concurrency for [\d,]+ tokens per request: {_NUMBER}x", min),
    "model_gib": (rf"Model loading took {_NUMBER} GiB", max),
    "startup_model_load_s": (rf"Model loading took [\d.]+ GiB(?: memory)? and {_NUMBER} s", max),
    "startup_weights_s": (rf"Loading weights took {_NUMBER} s", max),
    "startup_compile_s": (rf"torch\.compile (?:takes|took) {_NUMBER} s in total", max),
    "startup_graphs_s": (rf"Graph capturing finished in {_NUMBER} sec", max),
    "startup_init_engine_s": (rf"init engine \([^)]*\) took {_NUMBER} s", max),
}
"""By fact: its line, and which of several ranks' figures stands for all."""


def facts_of(log: str) -> dict[str, float]:
    """Returns the facts in a log: tokens of KV cache, and seconds of the stages of the start.

    With several ranks the smallest cache and the slowest stage.
    """
    found = {}
    for name, (pattern, of_all) in _LINES.items():
        figures = [float(text.replace(",", "")) for text in re.findall(pattern, log)]
        if figures:
            found[name] = of_all(figures)
    return found
