"""NVIDIA's ``dynamo.replay``, in a virtual environment of its own (PyPI ``ai-dynamo==1.4.2``)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dynosim.sim.workload.columns import Workload

PEER = "dynamo.replay 1.4.2"
BLOCK_TOKENS = 512

# The peer's names of the outcomes that both report.
OUTCOMES = {
    "mean_ttft_ms": "mean_ttft_ms",
    "p99_ttft_ms": "p99_ttft_ms",
    "mean_itl_ms": "mean_itl_ms",
    "mean_e2el_ms": "mean_e2e_latency_ms",
    "output_throughput": "output_throughput_tok_s",
    "prefix_hit_rate": "prefix_cache_reused_ratio",
}
ROUTERS = {"round_robin": "round_robin", "kv_aware": "kv_router"}


@dataclass(frozen=True)
class Peer:
    """Where the peer is, and the profile of :class:`peer_law.PeerLaw` in its own format."""

    python: str
    law: Path

    def command(
        self, trace: Path, workers: int, report: Path, router: str = "round_robin"
    ) -> list[str]:
        """Returns the command that replays a trace behind a router and writes a report."""
        engine = {
            "block_size": BLOCK_TOKENS,
            "num_gpu_blocks": 2000,
            "planner_profile_data": str(self.law),
        }
        return [
            *(self.python, "-m", "dynamo.replay", str(trace), "--num-workers", str(workers)),
            *("--router-mode", ROUTERS[router], "--trace-block-size", str(BLOCK_TOKENS)),
            *("--extra-engine-args", json.dumps(engine), "--report-json", str(report)),
        ]


def outcomes(report: Path) -> dict[str, float]:
    """Returns the outcomes of a report under our names."""
    document = json.loads(report.read_text(encoding="utf-8"))
    return {ours: document[theirs] for ours, theirs in OUTCOMES.items()}


def write_trace(workload: Workload, path: Path) -> None:
    """Writes a workload without shared prefixes as the Mooncake rows that the peer reads."""
    used = 0
    with path.open("w", encoding="utf-8") as lines:
        for arrival_s, tokens_in, tokens_out in zip(
            workload.arrival_s.tolist(),
            workload.input_tokens.tolist(),
            workload.output_tokens.tolist(),
            strict=True,
        ):
            blocks = -(-tokens_in // BLOCK_TOKENS)
            row = {
                "timestamp": round(arrival_s * 1000),
                "input_length": tokens_in,
                "output_length": tokens_out,
                "hash_ids": list(range(used, used + blocks)),
            }
            used += blocks
            lines.write(json.dumps(row) + "\n")
