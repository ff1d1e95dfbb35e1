"""A conclusion as one HTML file that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from string import Template

from dynosim.search.metric import METRICS
from dynosim.verification.conclusion import Conclusion
from dynosim.verification.render import figure, name_of, signed, spread, summary_lines
from dynosim.verification.rescore import METHODS

_PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>$title</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem;
  color: #1a1a1a; background: #fff; }
table { border-collapse: collapse; margin: 0 0 1.5rem; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
.verdict { font-size: 1.2rem; padding: .6rem 1rem; border-left: .4rem solid #0072B2;
  background: #f3f6f8; }
svg { max-width: 100%; height: auto; }
</style>
<h1>$title</h1>
<div class="verdict"><strong>$word</strong>$reasons</div>
<p>$about</p>
$picture
<h2>What follows</h2>
$summary
$picks
</html>
""")


def page(conclusion: Conclusion, about: str, svg: str) -> str:
    """Returns the HTML; ``about`` is how it was measured, ``svg`` the overlay of this project."""
    rescored = conclusion.rescored
    lines = [line for line in summary_lines(conclusion) if not line.startswith((" ", "verdict"))]
    if rescored is not None:
        lines.append(f"how it was scored anew: {METHODS[rescored.method]}")
    model = conclusion.prepared.preference.recommended.deployment.model
    return _PAGE.substitute(
        title=html.escape(f"{model}: predicted and measured"),
        word=html.escape(conclusion.verdict.word),
        reasons=_list(conclusion.verdict.reasons),
        about=html.escape(about),
        picture=svg[svg.index("<svg") :],
        summary=_list(lines),
        picks="\n".join(_pick(conclusion, i) for i in range(len(conclusion.measured))),
    )


def _pick(conclusion: Conclusion, index: int) -> str:
    measured = conclusion.measured[index]
    head = (
        f"Trial {measured.pick.number}: {name_of(conclusion.prepared.result, measured.pick.trial)}"
    )
    words = measured.failure or measured.pick.reason
    rows = [
        (
            METRICS[row.metric].axis,
            figure(row.predicted),
            figure(row.measured),
            signed(row.error),
            spread(row),
            "–" if row.interval is None else " … ".join(map(figure, row.interval)),
            {None: "", True: "inside", False: "outside"}[row.is_inside],
        )
        for row in conclusion.rows[index]
    ]
    header = ("metric", "predicted", "measured", "error", "repeats ±", "80 % interval", "")
    table = _table(header, rows) if rows else ""
    return f"<h2>{html.escape(head)}</h2>\n<p>{html.escape(words)}</p>\n{table}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    return "\n".join(["<table>", line(header, "th"), *(line(r, "td") for r in rows), "</table>"])


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines) + "</ul>"
