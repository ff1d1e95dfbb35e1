"""Measures how fast dynosim simulates, beside a peer where there is one, and writes the report.

    python benchmarks/run.py --conversation conversation_trace.jsonl \\
        --azure azure_512.csv --azure azure_5000.csv \\
        --peer-python PEER_VENV/bin/python --peer-law dynamo_replay_law.npz \\
        --compiled UNPACKED_WHEEL --output docs/performance.md

Every figure is of a process of its own. Cases whose data is not given are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from measure import Measurement
from peer import PEER, Peer, outcomes, write_trace
from process import alternate, run
from report import Comparison, Report, Row

SIZES = (10_000, 100_000, 1_000_000)
SATURATED_REQUESTS = 20_000
CONVERSATIONS = {"conversation": "round_robin", "conversation_kv": "kv_aware"}
"""Cases of the conversation trace, and the routers of their names."""
HERE = Path(__file__).resolve().parent


def measured(
    case: str, argument: object, rounds: int, *flags: str, python_path: Path | None = None
) -> Measurement:
    """Returns the cheapest of some runs of a case, after one that leaves compiled files."""
    command = [sys.executable, str(HERE / "measure.py"), case, str(argument), *flags]
    printed = [run(command, python_path).printed for _ in range(rounds + 1)]
    return min((Measurement(**json.loads(text)) for text in printed), key=lambda m: m.cpu_s)


def rows(case: str, arguments: Sequence[object], rounds: int, compiled: Path | None) -> list[Row]:
    """Returns a measurement for each argument, and one with the compiled inner loop."""
    found = []
    for argument in arguments:
        for python_path in (None, compiled)[: 1 if compiled is None else 2]:
            least = measured(case, argument, _rounds(argument, rounds), python_path=python_path)
            found.append((least, python_path is not None))
    return found


def _rounds(argument: object, rounds: int) -> int:
    """Returns how often to run a case: seldom where it takes long."""
    return max(1, min(rounds, 200_000 // argument)) if isinstance(argument, int) else rounds


def simulate_command(trace: Path, folder: Path, router: str) -> list[str]:
    """Returns ``dynosim simulate`` of the conversation case, result files included."""
    return [
        *(sys.executable, "-m", "dynosim", "simulate", "--model", "Qwen/Qwen3-32B"),
        *("--gpu", "h200_sxm", "--backend", "vllm", "--tensor-parallel-size", "2"),
        *("--replicas", "8", "--router", router, "--block-size", "512", "--quiet"),
        *("--trace", str(trace), "--json", str(folder / "ours.json")),
    ]


def compare_conversation(
    case: str, router: str, trace: Path, peer: Peer | None, rounds: int, compiled: Path | None
) -> Comparison:
    """Returns whole processes that replay the trace: ours, and the peer's in turn."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = simulate_command(trace, folder, router)
        contestants = {"dynosim": lambda: run(ours)}
        if compiled is not None:
            contestants["dynosim, compiled"] = lambda: run(ours, compiled)
        if peer is None:
            return Comparison(alternate(rounds, contestants))
        report = folder / "peer.json"
        contestants[PEER] = lambda: run(peer.command(trace, 8, report, router))
        costs = alternate(rounds, contestants)
        same_law = measured(case, trace, 1, "--peer-law")
        return Comparison(costs, same_law.outcomes, outcomes(report))


def compare_saturated(peer: Peer, rounds: int) -> Comparison:
    """Returns whole processes that run the saturated case, ours and the peer's in turn."""
    from cases import saturated

    with tempfile.TemporaryDirectory() as name:
        trace, report = Path(name) / "saturated.jsonl", Path(name) / "peer.json"
        write_trace(saturated(str(SATURATED_REQUESTS))[1], trace)
        theirs = peer.command(trace, 1, report)
        script = str(HERE / "measure.py")
        ours = [sys.executable, script, "saturated", str(SATURATED_REQUESTS), "--peer-law"]
        costs = alternate(rounds, {"dynosim": lambda: run(ours), PEER: lambda: run(theirs)})
        found = json.loads(costs["dynosim"][0].printed)["outcomes"]
        return Comparison(costs, found, outcomes(report))


def measure_all(args: argparse.Namespace) -> str:
    """Returns the report's text."""
    peer = Peer(args.peer_python, args.peer_law) if args.peer_python else None
    rounds, compiled = args.rounds, args.compiled
    report = Report(rounds)
    trace = args.conversation
    for case, router in CONVERSATIONS.items() if trace else ():
        report.conversation(
            router,
            compare_conversation(case, router, trace, peer, rounds, compiled),
            rows(case, [trace], rounds, compiled),
        )
    if args.azure:
        report.azure(rows("azure", args.azure, rounds, compiled))
    report.sizes(rows("calm", SIZES, rounds, compiled))
    report.saturated(
        rows("saturated", [SATURATED_REQUESTS], rounds, compiled),
        compare_saturated(peer, rounds) if peer else None,
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
    parser.add_argument("--compiled", type=Path, help="an unpacked wheel of DYNOSIM_COMPILE=1")
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
