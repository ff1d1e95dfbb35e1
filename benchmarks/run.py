"""Measures how fast dynosim simulates, beside a peer where there is one, and writes the report.

    python benchmarks/run.py --conversation conversation_trace.jsonl \\
        --azure azure_512.csv --azure azure_5000.csv \\
        --peer-python PEER_VENV/bin/python --peer-law dynamo_replay_law.npz \\
        --output docs/performance.md

Every figure is of a process of its own. Cases whose data is not given are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
from pathlib import Path

from measure import Measurement
from peer import Peer, outcomes, write_trace
from process import alternate, run
from report import Comparison, Report

SIZES = (10_000, 100_000, 1_000_000)
SATURATED_REQUESTS = 20_000
HERE = Path(__file__).resolve().parent


def measured(case: str, argument: object, rounds: int, *flags: str) -> Measurement:
    """Returns the cheapest of some runs of a case, after one that leaves compiled files."""
    command = [sys.executable, str(HERE / "measure.py"), case, str(argument), *flags]
    found = [Measurement(**json.loads(run(command).printed)) for _ in range(rounds + 1)]
    return min(found, key=lambda m: m.cpu_s)


def simulate_command(trace: Path, folder: Path) -> list[str]:
    """Returns ``dynosim simulate`` of the conversation case, result files included."""
    return [
        *(sys.executable, "-m", "dynosim", "simulate", "--model", "Qwen/Qwen3-32B"),
        *("--gpu", "h200_sxm", "--backend", "vllm", "--tensor-parallel-size", "2"),
        *("--replicas", "8", "--router", "round_robin", "--block-size", "512", "--quiet"),
        *("--trace", str(trace), "--json", str(folder / "ours.json")),
    ]


def compare_conversation(trace: Path, peer: Peer | None, rounds: int) -> Comparison:
    """Returns whole processes that replay the trace: ours, and the peer's in turn."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = simulate_command(trace, folder)
        if peer is None:
            return Comparison(alternate(rounds, lambda: run(ours))[0])
        report = folder / "peer.json"
        theirs = peer.command(trace, 8, report)
        own, other = alternate(rounds, lambda: run(ours), lambda: run(theirs))
        same_law = measured("conversation", trace, 1, "--peer-law")
        return Comparison(own, other, same_law.outcomes, outcomes(report))


def compare_saturated(peer: Peer, rounds: int) -> Comparison:
    """Returns whole processes that run the saturated case, ours and the peer's in turn."""
    from cases import saturated

    with tempfile.TemporaryDirectory() as name:
        trace, report = Path(name) / "saturated.jsonl", Path(name) / "peer.json"
        write_trace(saturated(str(SATURATED_REQUESTS))[1], trace)
        theirs = peer.command(trace, 1, report)
        script = str(HERE / "measure.py")
        ours = [sys.executable, script, "saturated", str(SATURATED_REQUESTS), "--peer-law"]
        own, other = alternate(rounds, lambda: run(ours), lambda: run(theirs))
        return Comparison(own, other, json.loads(own[0].printed)["outcomes"], outcomes(report))


def measure_all(args: argparse.Namespace) -> str:
    """Returns the report's text."""
    peer = Peer(args.peer_python, args.peer_law) if args.peer_python else None
    report = Report(args.rounds)
    if args.conversation:
        report.conversation(
            compare_conversation(args.conversation, peer, args.rounds),
            measured("conversation", args.conversation, args.rounds),
        )
    report.azure([measured("azure", table, args.rounds) for table in args.azure])
    report.sizes([measured("calm", n, max(1, min(args.rounds, 200_000 // n))) for n in SIZES])
    report.saturated(
        measured("saturated", SATURATED_REQUESTS, args.rounds),
        compare_saturated(peer, args.rounds) if peer else None,
    )
    return report.text()


def main() -> None:
    """Runs all cases and prints or writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversation", type=Path, help="Mooncake's conversation trace")
    parser.add_argument("--azure", type=Path, action="append", default=[], help="CSV, repeatable")
    parser.add_argument("--peer-python", help="the Python that has ai-dynamo==1.4.2")
    parser.add_argument("--peer-law", type=Path, help="the peer's timing profile, .npz")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="a Markdown file to write (default: print)")
    args = parser.parse_args()
    if (args.peer_python is None) != (args.peer_law is None):
        parser.error("--peer-python and --peer-law go together")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as compiled:
        # As where the package is installed: modules are compiled once, not in every process.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        text = measure_all(args)
    if args.output:
        args.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
