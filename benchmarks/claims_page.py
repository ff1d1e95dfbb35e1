"""Writes docs/claims.md: published claims beside what dynosim makes of them.

python benchmarks/claims_page.py > docs/claims.md
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dynosim.commands.explain import published_text
from dynosim.pair import Pair, read_pair_file
from dynosim.planning.ablation import Ablation, ablate, ratio
from dynosim.planning.goal import UNITS, Objective, goal_of

CLAIMS = Path(__file__).parent.parent / "examples" / "claims"

HEAD = """# Published claims, and what dynosim makes of them

Each row is one file in `examples/claims/`: a baseline, a tuned deployment, one workload. The table
is written by `benchmarks/claims_page.py`; one row by, for example,

```bash
dynosim explain examples/claims/fp16_to_fp8.yaml --plot fp8.png
```

Nothing here is fitted to the claims. *Ours* is tuned over baseline. A layer's factor is what it
adds on top of the layers before it; *alone* is what it adds to the baseline by itself.
"""

OBJECTIVES: dict[str, Objective] = {name: name for name in UNITS}


def explained(path: Path) -> tuple[Pair, Ablation]:
    """Returns a claim and its ablation."""
    pair = read_pair_file(path)
    goal = goal_of(
        OBJECTIVES[pair.about["objective"]],
        pair.workload,
        pair.slos,
        best_parallelism=pair.about.get("best_parallelism"),
    )
    return pair, ablate(pair.baseline, pair.tuned, goal)


def overview(claims: list[tuple[Pair, Ablation]]) -> Iterator[str]:
    """Yields the table, a claim a row."""
    yield "| claim | objective | published | ours | baseline | tuned |"
    yield "|---|---|---:|---:|---:|---:|"
    for pair, found in claims:
        about = pair.about
        yield (
            f"| {about['title']} | {UNITS[OBJECTIVES[about['objective']]]} "
            f"| {published_text(pair) or '–'} | ×{found.factor:.3g} "
            f"| {found.baseline.value:,.4g} on {found.baseline.deployment.num_gpus} GPU(s) "
            f"| {found.tuned.value:,.4g} on {found.tuned.deployment.num_gpus} GPU(s) |"
        )


def details(pair: Pair, found: Ablation) -> Iterator[str]:
    """Yields where a claim comes from, and its layers."""
    yield f"### {pair.about['title']}"
    yield ""
    if "source" in pair.about:
        yield f"Published {published_text(pair)}: {pair.about['source']}."
    if "note" in pair.about:
        yield f"Note: {pair.about['note']}."
    yield ""
    yield "| layer | changed | alone | on top of the layers before | narrowest then |"
    yield "|---|---|---:|---:|---|"
    before = found.baseline
    for step in found.steps:
        changed = ", ".join(f"`{name}: {value}`" for name, value in step.fields.items())
        alone = "cannot run" if step.alone.reason else f"×{ratio(step.alone, found.baseline):.3g}"
        on_top = "cannot run" if step.together.reason else f"×{ratio(step.together, before):.3g}"
        yield f"| {step.layer} | {changed} | {alone} | {on_top} | {step.narrowest or '–'} |"
        before = step.together
    yield ""


def page() -> str:
    """Returns the page."""
    claims = [explained(path) for path in sorted(CLAIMS.glob("*.yaml"))]
    lines = [HEAD, *overview(claims), "", "## Layer by layer", ""]
    for pair, found in claims:
        lines += details(pair, found)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
