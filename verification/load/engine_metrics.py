"""What an engine counts of itself, from its Prometheus page: before a load, after it, and between.

Names are vLLM's (docs.vllm.ai, "Production metrics"; read in vLLM 0.32).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynosim.verification.load.bad_answer import BadAnswer
from dynosim.verification.load.endpoint import Endpoint
from dynosim.verification.load_plan import LoadPlan

if TYPE_CHECKING:
    import aiohttp

PATH = "/metrics"
_MOST_BYTES = 16 << 20
_TIMEOUT_S = 10.0
_LINE = re.compile(r"^(?P<name>vllm:[\w:]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_HITS, _QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
_PREEMPTIONS = "vllm:num_preemptions_total"
_FINISHED = "vllm:request_success_total"
_UNFINISHED = ("vllm:num_requests_running", "vllm:num_requests_waiting")
_CACHE = "vllm:cache_config_info"
_WARM_SHARE = 0.02
"""Share of the prompts' tokens that may be cached beyond what they share, before it is said."""


@dataclass(frozen=True, kw_only=True)
class EngineMetrics:
    """Values by name, summed over engines and labels; ``kv_cache_tokens`` where they are told."""

    values: Mapping[str, float]
    kv_cache_tokens: int | None = None

    @property
    def unfinished(self) -> float:
        """Requests that are in the engine or wait for it."""
        return sum(self.values.get(name, 0.0) for name in _UNFINISHED)


async def scrape(session: aiohttp.ClientSession, endpoint: Endpoint) -> EngineMetrics | None:
    """Returns what the engine counts, None where it has no such page."""
    import aiohttp

    from dynosim.verification.load.completion import read_at_most

    url, timeout = endpoint.url(PATH), aiohttp.ClientTimeout(total=_TIMEOUT_S)
    try:
        async with session.get(url, timeout=timeout, allow_redirects=False) as response:
            if response.status != 200:
                return None
            return parse((await read_at_most(response, _MOST_BYTES)).decode(errors="replace"))
    except (aiohttp.ClientError, OSError, ValueError, BadAnswer):
        return None


def parse(text: str) -> EngineMetrics | None:
    """Returns vLLM's values in a Prometheus page, None where there are none."""
    values: defaultdict[str, float] = defaultdict(float)
    kv_cache_tokens = 0
    for name, labels, value in _samples(text):
        values[name] += value
        if name == _CACHE:
            kv_cache_tokens += _cache_tokens(labels)
    if not values:
        return None
    return EngineMetrics(values=dict(values), kv_cache_tokens=kv_cache_tokens or None)


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.splitlines():
        if found := _LINE.match(line):
            try:
                value = float(found["value"])
            except ValueError:
                continue
            yield found["name"], dict(_LABEL.findall(found["labels"] or "")), value


def _cache_tokens(labels: Mapping[str, str]) -> int:
    blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
    return int(blocks) * int(size) if blocks.isdecimal() and size.isdecimal() else 0


def facts(before: EngineMetrics, after: EngineMetrics) -> dict[str, float]:
    """Returns what the engine did in between, under names of results."""
    names = {
        "preemptions": _PREEMPTIONS,
        "prefix_cache_hit_tokens": _HITS,
        "prefix_cache_query_tokens": _QUERIES,
    }
    found = {ours: _grown(before, after, theirs) for ours, theirs in names.items()}
    cache = {"kv_cache_tokens": after.kv_cache_tokens}
    return {name: float(value) for name, value in {**found, **cache}.items() if value is not None}


def notes(before: EngineMetrics, after: EngineMetrics, plan: LoadPlan) -> list[str]:
    """Returns what a reader should know: other traffic, preemptions, a prefix cache that was warm.

    The measured requests of ``plan`` were sent in between.
    """
    found = []
    requests = len(plan) - plan.warmup
    if before.unfinished:
        found.append(f"{before.unfinished:.0f} requests of others were in the engine at the start")
    finished = _grown(before, after, _FINISHED)
    if finished is not None and finished > requests:
        found.append(f"the engine answered {finished - requests:.0f} requests of others meanwhile")
    preemptions = _grown(before, after, _PREEMPTIONS)
    if preemptions:
        found.append(f"{preemptions:.0f} preemptions")
    # A request that was preempted finds its own blocks.
    if not preemptions and plan.shared_tokens is not None:
        hits = _grown(before, after, _HITS) or 0.0
        share = (hits - plan.shared_tokens) / sum(map(len, plan.prompts[plan.warmup :]))
        if share > _WARM_SHARE:
            found.append(
                f"the prefix cache was warm: it had {share:.0%} of the prompts' tokens more than "
                "they share; send other prompts, or restart the engine"
            )
    return found


def _grown(before: EngineMetrics, after: EngineMetrics, name: str) -> float | None:
    if name not in before.values or name not in after.values:
        return None
    return after.values[name] - before.values[name]
