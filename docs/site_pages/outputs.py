"""Every file that a command writes, and its columns."""

from __future__ import annotations

from dynosim.search.run_folder import CANDIDATES, FILES
from dynosim.search.table import SHARE_COLUMN, STATUS_COLUMNS
from dynosim.sim.result_files import bench_document
from dynosim.sim.timeline.series import NAMES
from site_pages.markdown import code, table
from site_pages.meanings import explained
from site_pages.metrics import all_request_columns, runs
from site_pages.units import unit

SOMETIMES = (
    *("intervals_80", "calibration", "extrapolated", "prefill", "links", "speculation"),
    *("replicates", "bottleneck", "what_if"),
)
"""Keys under ``dynosim`` that the command adds, or that only some runs have."""


def files_page() -> str:
    """Returns the reference of output files."""

    return (
        "# Output files\n\n"
        "Files that results are compared by hold no time, path or worker count: the same input\n"
        "gives the same bytes. Unknown values are empty in CSV and null in JSON.\n\n"
        f"{_search()}\n{_result()}\n{_requests()}\n{_series()}\n{_others()}"
    )


def _search() -> str:
    files = table(
        ("file", "what it holds"), _coded("search_files", [*FILES, f"{CANDIDATES}/NNN.yaml"])
    )
    columns = [*STATUS_COLUMNS, SHARE_COLUMN]
    return (
        "## `dynosim search --output-dir DIR`\n\n"
        f"{files}\n"
        "### Columns of `trials.csv` and `frontier.csv`\n\n"
        f"{table(('column', 'meaning'), _coded('trial_columns', columns))}\n"
        "Then every field of the [deployment](deployment.md), the objectives, and every other\n"
        "[metric](metrics.md) by name.\n"
    )


def _result() -> str:
    document = bench_document(runs()[0], runs()[0].metrics({"ttft": 100.0}), seed=0)
    own = document["dynosim"]
    assert isinstance(own, dict)
    metrics = runs()[0].metrics()
    keys = [k for k in document if k not in metrics]
    return (
        "## `dynosim simulate --json OUT`\n\n"
        "The flat result of `vllm bench serve`, which its plotters read; what is only dynosim's\n"
        "stands under one key. Its [metrics](metrics.md) stand at the top level.\n\n"
        f"{table(('key', 'meaning'), _coded('result_keys', keys))}\n"
        "### Under `dynosim`\n\n"
        f"{table(('key', 'meaning'), _coded('own_keys', [*own, *SOMETIMES]))}"
    )


def _requests() -> str:
    rows = [
        (code(name), unit(name), meaning)
        for name, meaning in explained("request_columns", all_request_columns())
    ]
    return (
        "## `--requests-jsonl OUT`\n\n"
        "One JSON object a request, in the workload's order.\n\n"
        f"{table(('key', 'unit', 'meaning'), rows)}"
    )


def _series() -> str:
    return (
        "## `--series OUT`\n\n"
        "Every engine's gauges and counters, under the names of vLLM's `/metrics`.\n\n"
        f"{table(('column', 'meaning'), _coded('series_columns', ('time_s', 'engine', *NAMES)))}"
    )


def _others() -> str:
    return (
        "## Others\n\n"
        "| file | written by | what it is |\n|---|---|---|\n"
        "| `--timeline OUT` | `simulate` | Chrome trace events for ui.perfetto.dev; "
        "[what is in it](../bottlenecks.md#in-files) |\n"
        "| `-o OUT` | `calibrate fit` | fitted overheads, as [`--calibration`]"
        "(../calibration.md#fit-to-your-own-runs) takes them |\n"
        "| `--out DIR` | `calibrate measure` | [a folder of kernel tables]"
        "(../kernel-tables.md#the-folder) |\n"
        "| `DIR/verification/` | `verify` | `verification.json`, `verification.html`, "
        "`overlay.png`, `overlay.svg`, `calibration.yaml`, `runs/` (a JSON a measurement), "
        "`logs/`; [what is said](../verification.md#what-is-said) |\n"
        "| `--write DIR` | `verify` | a folder of launch and load files for each trial, "
        "`plan.json`, `README.md` |\n"
        "| `--output DIR` | `validate` | the [accuracy page](../accuracy.md), its figures and "
        "one row a case |\n"
    )


def _coded(section: str, names: object) -> list[tuple[str, str]]:
    return [(code(name), meaning) for name, meaning in explained(section, names)]  # type: ignore[arg-type]
