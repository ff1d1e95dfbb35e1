"""Writes the figures of a kept run into a page between its markers: `record.py RUN PAGE`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any

import yaml

BEGIN, END = "<!-- verify_cpu: begin -->", "<!-- verify_cpu: end -->"
WIDTH = 100
SETTINGS = "seqs, tokens, prefix cache, threshold"
IMAGE = "images/verify_cpu.png"
LABELS = {
    "output_throughput": "output tok/s",
    "mean_tpot_ms": "mean TPOT, ms",
    "median_tpot_ms": "median TPOT, ms",
    "mean_ttft_ms": "mean TTFT, ms",
    "median_ttft_ms": "median TTFT, ms",
    "median_e2el_ms": "median E2EL, ms",
}


def main(run: Path, page: Path) -> None:
    """Replaces the section; a page without markers gets it at its end."""
    text = page.read_text(encoding="utf-8") if page.is_file() else "# From frontier to hardware\n"
    if BEGIN not in text:
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{section(run)}\n{END}{after}", encoding="utf-8")


def section(run: Path) -> str:
    """Returns what stands between the markers."""
    verified, gates = _json(run / "verification.json"), _json(run / "gates.json")
    parts = [
        _about(verified, gates),
        _hardware(run),
        *_closed(verified, gates),
        f"![Predicted and measured points of the five trials]({IMAGE})",
        *_open(_json(run / "open_loop.json"), gates),
        _steps(gates["parity"]),
        _order(verified, gates),
        _errors(gates),
    ]
    return "\n\n".join(part if part[0] in "|!" else fill(part, WIDTH) for part in parts)


def _about(verified: Mapping[str, Any], gates: Mapping[str, Any]) -> str:
    about, facts = gates["about"], verified["picks"][0]["facts"]
    return (
        f"Written by `examples/verify_cpu/run.py --record`, {about['date']}: vLLM {facts['vllm']}, "
        f"torch {facts['torch']}, Python {about['python']}, one core of {about['cpu']} with "
        f"{about['cores']} cores that other jobs kept busy. A Llama of 56 million parameters in "
        "float32, random weights. Times are processor seconds of the engine's process over those "
        "of a probe before every step, times 2 ms, on a clock that only steps move."
    )


def _hardware(run: Path) -> str:
    (row,) = yaml.safe_load((run / "hardware/overheads.yaml").read_text())["rows"]
    tables = yaml.safe_load((run / "hardware/tables.yaml").read_text())
    figures, held = row["figures"], row["held_out"]["busy_time"]
    return (
        "**The CPU as hardware.** vLLM's own kernels, measured alone by `dynosim calibrate measure "
        "--engine vllm`, and its own steps under other loads, by `dynosim calibrate steps`: "
        f"{tables['source'].partition('; ')[2]}; {figures['host_step_s'] * 1e3:.2f} ms a step and "
        f"{figures['host_per_sequence_s'] * 1e6:.0f} us a sequence for the host. With each of "
        f"{held['points']} loads left out of the fit in turn, the time it was busy for is off by "
        f"{held['after']:.1%} (median)."
    )


def _closed(verified: Mapping[str, Any], gates: Mapping[str, Any]) -> Iterator[str]:
    repeats = verified["picks"][0]["repeats"]
    yield (
        f"**Closed loop**, 16 clients, {verified['requests']} requests, {repeats} interleaved "
        "repeats. Predicted / median measured, error, and in brackets how far repeats "
        "are apart:"
    )
    roles = {pick["trial"]: pick["is_control"] for pick in verified["picks"]}
    settings = gates["settings"]
    heads = {
        trial: f"{trial}{' (dominated)' if is_control else ''} | {settings[str(trial)]}"
        for trial, is_control in roles.items()
    }
    yield _table(f"trial | {SETTINGS}", heads, _of(gates, "closed"))


def _open(found: Mapping[str, Any], gates: Mapping[str, Any]) -> Iterator[str]:
    repeats = len(found["picks"][0]["measured"])
    yield (
        f"**Open loop**, {found['request_rate']:.2f} requests/s, Poisson, {found['requests']} "
        f"requests, {repeats} repeats:"
    )
    heads = {pick["trial"]: str(pick["trial"]) for pick in found["picks"]}
    yield _table("trial", heads, _of(gates, "open"))


def _table(title: str, heads: Mapping[int, str], gates: Sequence[Mapping[str, Any]]) -> str:
    """Returns a Markdown table, a row a trial."""
    names = [name for name in LABELS if name in {gate["metric"] for gate in gates}]
    titles = [*title.split(" | "), *(LABELS[name] for name in names)]
    rows = [titles, ["---" if text == SETTINGS else "---:" for text in titles]]
    for trial, head in heads.items():
        figures = {gate["metric"]: gate for gate in gates if gate["trial"] == trial}
        rows.append([*head.split(" | "), *(_figure(figures[name]) for name in names)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _steps(parity: Mapping[str, int]) -> str:
    return (
        "**Steps.** Fed the costs of the real steps, the simulator made the same ones in "
        f"{parity['equal']} of {parity['runs']} runs: {parity['steps']:,} steps with the same "
        f"tokens of the same requests, {parity['preemptions']:,} preemptions and "
        f"{parity['cached_tokens']:,} prompt tokens found in the prefix cache among them. Some of "
        "these runs are kept in `tests/parity/data/vllm_engine`; every test run compares them."
    )


def _order(verified: Mapping[str, Any], gates: Mapping[str, Any]) -> str:
    pairs, verdict, regret = gates["pairs"], verified["verdict"], verified["regret"]
    kept = pairs["beyond_noise"] - len(pairs["turned"])
    taus = ", ".join(f"{o['metric']} {o['kendall_tau']:.2f}" for o in verified["order"])
    return (
        f"**Order.** {kept} of {pairs['beyond_noise']} pairs whose predicted gap exceeds the noise "
        f"kept it; Kendall's tau: {taus}. Regret of the recommended trial: {regret['share']:.1%} "
        f"(noise {regret['noise']:.1%}). Verdict: **{verdict['word']}**; "
        f"{'; '.join(verdict['reasons'])}."
    )


def _errors(gates: Mapping[str, Any]) -> str:
    words = []
    for load in ("closed", "open"):
        errors = [abs(gate["error"]) for gate in _of(gates, load)]
        words.append(f"{load} loop {median(errors):.1%} (largest {max(errors):.1%})")
    spreads = [gate["spread"] for gate in gates["gates"]]
    words.append(f"repeats {median(spreads):.1%} apart (largest {max(spreads):.1%})")
    verdicts = Counter(gate["verdict"] for gate in gates["gates"])
    counts = ", ".join(f"{count} {word}" for word, count in sorted(verdicts.items(), reverse=True))
    return (
        f"**Median errors**: {'; '.join(words)}. Of {len(gates['gates'])} figures against their "
        f"limits (closed loop 15 %, TTFT 20 %, open loop 30 %): {counts}. Inconclusive are those "
        "whose repeats are more than 15 % apart, whatever their error."
    )


def _figure(gate: Mapping[str, Any]) -> str:
    digits = 0 if gate["measured"] >= 100 else 1
    shown = f"{gate['predicted']:.{digits}f} / {gate['measured']:.{digits}f}"
    return f"{shown}, {gate['error']:+.1%} ({gate['spread']:.1%})"


def _of(gates: Mapping[str, Any], load: str) -> list[Mapping[str, Any]]:
    return [gate for gate in gates["gates"] if gate["load"] == load]


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
