"""Writes the figures of OUT into a page between its markers: `record.py OUT PAGE`."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import yaml

BEGIN, END = "<!-- verify_cpu: begin -->", "<!-- verify_cpu: end -->"
LABELS = {
    "output_throughput": "output tok/s",
    "mean_tpot_ms": "mean TPOT, ms",
    "median_tpot_ms": "median TPOT, ms",
    "mean_ttft_ms": "mean TTFT, ms",
    "median_ttft_ms": "median TTFT, ms",
    "median_e2el_ms": "median E2EL, ms",
}


def main(out: Path, page: Path) -> None:
    """Replaces the section; a page without markers gets it at its end."""
    text = page.read_text(encoding="utf-8") if page.is_file() else "# From frontier to hardware\n"
    if BEGIN not in text:
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    section = "\n".join(lines(out))
    page.write_text(f"{before}{BEGIN}\n{section}\n{END}{after}", encoding="utf-8")


def lines(out: Path) -> Iterator[str]:
    """Yields the section."""
    verified = _json(out / "search/verification/verification.json")
    gates = _json(out / "gates.json")
    facts = verified["picks"][0]["facts"]
    versions = f"vLLM {facts['vllm']}, torch {facts['torch']}, Python {platform.python_version()}"
    when = datetime.fromtimestamp((out / "gates.json").stat().st_mtime, tz=UTC).date()
    yield "## The last real run: vLLM on a CPU"
    yield ""
    yield f"Written by `examples/verify_cpu/run.py --record`, {when}. {versions}, one core of"
    yield f"{_cpu()} with {os.cpu_count()} cores, shared with other jobs. Llama of 56 million"
    yield "parameters in float32, random weights. Times are processor seconds of the engine's"
    yield "process over those of a probe timed before every step, times 2 ms; the clock is virtual."
    yield ""
    yield from _hardware(out)
    yield from _closed(verified, gates)
    yield from _open(_json(out / "open_loop.json"), gates)
    yield from _steps(gates["parity"])
    yield from _order(verified, gates)


def _hardware(out: Path) -> Iterator[str]:
    row = yaml.safe_load((out / "hardware/overheads.yaml").read_text())
    tables = yaml.safe_load((out / "hardware/tables.yaml").read_text())
    (fitted,) = row["rows"]
    figures, held = fitted["figures"], fitted["held_out"]["busy_time"]
    step_ms, sampled_us = figures["host_step_s"] * 1e3, figures["host_per_sequence_s"] * 1e6
    yield "**The CPU as hardware.** vLLM's own kernels, measured alone by `dynosim calibrate"
    yield "measure --engine vllm`, and its own steps under other loads, by `dynosim calibrate"
    yield f"steps`: {tables['source'].partition('; ')[2]}; {step_ms:.2f} ms a step and"
    yield f"{sampled_us:.0f} us a sequence for the host. Of {held['points']} loads each left out of"
    yield f"the fit, the time busy is off by {held['after']:.1%} (median)."
    yield ""


def _closed(verified: Mapping[str, Any], gates: Mapping[str, Any]) -> Iterator[str]:
    picks = {pick["trial"]: pick for pick in verified["picks"]}
    requests = f"{verified['requests']} requests, {verified['repeats']} interleaved repeats"
    yield f"**Closed loop**, 16 clients, {requests}. Predicted / median measured, error, and in"
    yield "brackets how far repeats differ:"
    yield ""
    names = [name for name in LABELS if name in {g["metric"] for g in _of(gates, "closed")}]
    yield "| trial | seqs, tokens, prefix cache, threshold | " + _cells(LABELS[n] for n in names)
    yield "|---:|---|" + "---:|" * len(names)
    for trial, pick in picks.items():
        role = " (dominated)" if pick["is_control"] else ""
        figures = {g["metric"]: g for g in _of(gates, "closed") if g["trial"] == trial}
        yield f"| {trial}{role} | {gates['settings'][str(trial)]} | " + _cells(
            _figure(figures[n]) for n in names
        )
    yield ""


def _open(found: Mapping[str, Any], gates: Mapping[str, Any]) -> Iterator[str]:
    names = [name for name in LABELS if name in {g["metric"] for g in _of(gates, "open")}]
    repeats = len(found["picks"][0]["measured"])
    yield f"**Open loop**, {found['request_rate']:.2f} requests/s, Poisson, {found['requests']}"
    yield f"requests, {repeats} repeats:"
    yield ""
    yield "| trial | " + _cells(LABELS[n] for n in names)
    yield "|---:|" + "---:|" * len(names)
    for pick in found["picks"]:
        trial = pick["trial"]
        figures = {g["metric"]: g for g in _of(gates, "open") if g["trial"] == trial}
        yield f"| {trial} | " + _cells(_figure(figures[n]) for n in names)
    yield ""


def _steps(parity: Mapping[str, int]) -> Iterator[str]:
    yield "**Steps.** Fed the costs of the real steps, the simulator made the same ones in"
    yield f"{parity['equal']} of {parity['runs']} runs: {parity['steps']:,} steps with the same"
    yield f"tokens of the same requests, {parity['preemptions']:,} preemptions and"
    yield f"{parity['cached_tokens']:,} prompt tokens found in the prefix cache among them. Some of"
    yield "these runs are kept in `tests/parity/data/vllm_engine` and compared by every test run."
    yield ""


def _order(verified: Mapping[str, Any], gates: Mapping[str, Any]) -> Iterator[str]:
    pairs, verdict, regret = gates["pairs"], verified["verdict"], verified["regret"]
    kept = pairs["beyond_noise"] - len(pairs["turned"])
    taus = ", ".join(f"{o['metric']} {o['kendall_tau']:.2f}" for o in verified["order"])
    yield f"**Order.** {kept} of {pairs['beyond_noise']} pairs whose predicted gap exceeds the"
    yield f"noise kept it; Kendall's tau: {taus}. Regret of the recommended trial:"
    yield f"{regret['share']:.1%} (noise {regret['noise']:.1%}). Verdict: **{verdict['word']}**;"
    yield f"{'; '.join(verdict['reasons'])}."
    closed = [abs(g["error"]) for g in _of(gates, "closed")]
    opened = [abs(g["error"]) for g in _of(gates, "open")]
    spreads = [g["spread"] for g in gates["gates"]]
    words = [
        f"closed loop {median(closed):.1%} (largest {max(closed):.1%})",
        f"open loop {median(opened):.1%} (largest {max(opened):.1%})",
        f"repeats differ by {median(spreads):.1%} (largest {max(spreads):.1%})",
    ]
    yield f"Median errors: {'; '.join(words)}."


def _figure(gate: Mapping[str, Any]) -> str:
    digits = 0 if gate["measured"] >= 100 else 1
    shown = f"{gate['predicted']:.{digits}f} / {gate['measured']:.{digits}f}"
    return f"{shown}, {gate['error']:+.1%} ({gate['spread']:.1%})"


def _of(gates: Mapping[str, Any], load: str) -> list[Mapping[str, Any]]:
    return [gate for gate in gates["gates"] if gate["load"] == load]


def _cells(words: Iterator[str] | Sequence[str]) -> str:
    return " | ".join(words) + " |"


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
