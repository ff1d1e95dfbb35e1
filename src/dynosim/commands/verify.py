"""``dynosim verify``: a few trials of a search on a real engine, and what that says of the rest."""

from __future__ import annotations

import gc
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dynosim.flags import Debug, Quiet
from dynosim.hardware_models.errors import UserError
from dynosim.search.identity import workload_sha256
from dynosim.search.saved_run import SavedRun, load_run
from dynosim.terminal import print_json, print_note
from dynosim.verification.conclusion import Conclusion, Feedback, conclude
from dynosim.verification.document import document
from dynosim.verification.find_target import find_target
from dynosim.verification.folder import VerificationFolder
from dynosim.verification.launch_files import launch_files
from dynosim.verification.load.plan import WARM_UP
from dynosim.verification.measure import measure
from dynosim.verification.measured import Measured
from dynosim.verification.outputs import write_outputs
from dynosim.verification.prepared import Prepared, Selection, expected_s, prepare
from dynosim.verification.progress import Bar, duration_text
from dynosim.verification.render import pick_lines, print_conclusion
from dynosim.verification.result_files import measured_from, trials_of
from dynosim.verification.schedule import Turn
from dynosim.verification.target import Target, TargetOptions

EXECUTABLE = 0o755
TOP = 3

Run = Annotated[Path, Parameter(name="--run", metavar="DIR", help="Output folder of a search.")]
Top = Annotated[
    int | None,
    Parameter(
        metavar="INT",
        help="Points of the frontier to measure, the recommended one first. [default: 3, or 1 "
        "with --url]",
    ),
]
Dominated = Annotated[
    int, Parameter(metavar="INT", help="Dominated trials to measure too, as controls.")
]
Trials = Annotated[
    tuple[int, ...],
    Parameter(
        consume_multiple=True,
        negative=(),
        show_default=False,
        metavar="INT...",
        help="Measure these trials instead.",
    ),
]
Repeats = Annotated[
    int, Parameter(metavar="INT", help="Measurements of each trial, in rounds; medians count.")
]
NumPrompts = Annotated[
    int | None,
    Parameter(
        metavar="INT",
        help="Send only so many requests; predictions are then made anew for these.",
    ),
]
WarmUp = Annotated[int, Parameter(metavar="INT", help="Requests before each measurement.")]
TargetName = Annotated[
    str | None,
    Parameter(
        name="--target",
        metavar="NAME",
        help="Where to measure: local-vllm starts `vllm serve` for each trial and stops it.",
    ),
]
Url = Annotated[
    str | None,
    Parameter(metavar="URL", help="Measure the engine that is up here, which runs one trial."),
]
Model = Annotated[
    str | None,
    Parameter(metavar="NAME", help="Name the engine serves under; by default the model's."),
]
ApiKey = Annotated[
    str | None,
    Parameter(metavar="VARIABLE", help="Environment variable with the API key; never written."),
]
Headers = Annotated[
    str | None,
    Parameter(
        metavar="VARIABLE",
        help="Environment variable with more headers, as `Name: value` lines; never written.",
    ),
]
Command = Annotated[
    str,
    Parameter(
        metavar="WORDS",
        help="What starts vLLM where that is not `vllm`; for targets in a process, its Python.",
    ),
]
EngineArgs = Annotated[
    str,
    Parameter(
        metavar="WORDS",
        help="More arguments of the engine, as in '--dtype float32 --enforce-eager'.",
    ),
]
Device = Annotated[
    str, Parameter(metavar="auto|cpu|cuda", help="What a target in a process runs on.")
]
StartTimeout = Annotated[
    float, Parameter(metavar="SECONDS", help="Longest that an engine may take to be healthy.")
]
RunTimeout = Annotated[
    float, Parameter(metavar="SECONDS", help="Longest that one measurement may take.")
]
RequestTimeout = Annotated[
    float, Parameter(metavar="SECONDS", help="Longest that one answer may take.")
]
Write = Annotated[
    Path | None,
    Parameter(
        metavar="DIR",
        help="Measure nothing: write launch files and commands that send the load here.",
    ),
]
Results = Annotated[
    tuple[str, ...],
    Parameter(
        consume_multiple=True,
        negative=(),
        show_default=False,
        metavar="[TRIAL=]FILE...",
        help="Take result files of vllm bench, AIPerf, GenAI-Perf, GuideLLM, inference-perf or "
        "SGLang as the measurements; a path with trial-12 in it tells its trial.",
    ),
]
Rescore = Annotated[
    Feedback,
    Parameter(
        help="How the frontier is scored anew: by the ratios of measured to predicted, by "
        "simulating its short list with fitted overheads, or not at all."
    ),
]
Jobs = Annotated[
    int | None,
    Parameter(metavar="INT", help="Processes that simulate for the fit; by default one a CPU."),
]
Resume = Annotated[
    bool,
    Parameter(
        negative=(), show_default=False, help="Keep what was measured, and measure what is missing."
    ),
]
Overwrite = Annotated[
    bool, Parameter(negative=(), show_default=False, help="Measure anew what was measured.")
]
DryRun = Annotated[
    bool,
    Parameter(
        negative=(), show_default=False, help="Say what would be measured, and for how long."
    ),
]
Json = Annotated[
    bool, Parameter(negative=(), show_default=False, help="Print JSON instead of the tables.")
]


def verify_command(
    run: Run,
    *,
    top: Top = None,
    dominated: Dominated = 0,
    trials: Trials = (),
    repeats: Repeats = 3,
    num_prompts: NumPrompts = None,
    warmup: WarmUp = WARM_UP,
    target: TargetName = None,
    url: Url = None,
    write: Write = None,
    results: Results = (),
    served_model_name: Model = None,
    api_key_env: ApiKey = None,
    header_env: Headers = None,
    vllm_command: Command = "",
    engine_args: EngineArgs = "",
    device: Device = "auto",
    start_timeout: StartTimeout = 1800.0,
    run_timeout: RunTimeout = 3600.0,
    request_timeout: RequestTimeout = 600.0,
    rescore: Rescore = "ratios",
    jobs: Jobs = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure a few trials of a search on a real engine, compare, and score the frontier anew.

    Everything is kept in the folder `verification` of the run.
    """
    gc.enable()
    where = _place(target=target, url=url, write=write, results=results, dry_run=dry_run)
    files = trials_of(results)
    selection = Selection(
        top=top if top is not None else 1 if url else TOP,
        dominated=dominated,
        trials=tuple(files) or trials,
        num_prompts=num_prompts,
    )
    saved = load_run(run)
    prepared = prepare(saved, selection)
    if dry_run:
        print("\n".join(_plan_lines(prepared, repeats)))
        return
    if write is not None:
        _write_files(prepared, run, write, quiet=quiet)
        return
    if url and len(prepared.picks) > 1:
        hint = "name it: --trials 12; or let --target local-vllm start one engine a trial"
        raise UserError("an engine that is up runs one trial", where="--url", hint=hint)
    about = _about(saved, prepared, where, repeats)
    options = TargetOptions(
        folder=run,
        url=url,
        model=served_model_name,
        api_key_env=api_key_env,
        header_env=header_env,
        command=tuple(shlex.split(vllm_command)),
        arguments=tuple(shlex.split(engine_args)),
        device=device,
        start_timeout_s=start_timeout,
        run_timeout_s=run_timeout,
        request_timeout_s=request_timeout,
    )

    def tell(line: str) -> None:
        print_note(line, quiet=quiet)

    # Files of other tools stand beside what was measured here, and replace nothing of it.
    identity = None if files else {k: about[k] for k in ("run", "load", "target")}
    with VerificationFolder(run, identity, resume=resume, overwrite=overwrite) as folder:
        if files:
            measured = measured_from(prepared, files)
        else:
            for line in _plan_lines(prepared, repeats):
                tell(line)
            measured = _measure(
                prepared, folder, where, options, repeats=repeats, warmup=warmup, quiet=quiet
            )
        conclusion = conclude(
            prepared,
            measured,
            feedback=rescore,
            folder=folder,
            jobs=jobs or os.cpu_count() or 1,
            tell=tell,
        )
        write_outputs(folder, conclusion, about)
    _print(conclusion, about, folder.path, json=json, quiet=quiet)


def _print(
    conclusion: Conclusion, about: dict[str, Any], folder: Path, *, json: bool, quiet: bool
) -> None:
    if json:
        print_json(document(conclusion, about))
    else:
        print_conclusion(conclusion)
    print_note(f"written to {folder}", quiet=quiet)


def _place(
    *,
    target: str | None,
    url: str | None,
    write: Path | None,
    results: Sequence[str],
    dry_run: bool,
) -> str:
    """Returns where to measure; UserError unless exactly one way to do so was given."""
    ways = {"--target": target, "--url": url, "--write": write, "--results": results}
    given = [flag for flag, value in ways.items() if value]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} exclude each other")
    if not given and not dry_run:
        hint = f"give one of {', '.join(ways)}; --dry-run shows what would be measured"
        raise UserError("where to measure?", where="--target", hint=hint)
    return target or ("url" if url else "results")


def _about(saved: SavedRun, prepared: Prepared, where: str, repeats: int) -> dict[str, Any]:
    """Returns what was measured and where; no address, no key."""
    return {
        "run": saved.manifest["space_sha256"][:12],
        "load": workload_sha256(prepared.load)[:12],
        "target": where,
        "requests": len(prepared.load),
        "repeats": repeats,
    }


def _plan_lines(prepared: Prepared, repeats: int) -> list[str]:
    load_s = expected_s(prepared.picks, repeats)
    return [
        *pick_lines(prepared.picks),
        f"{len(prepared.picks)} trials × {repeats} rounds of {len(prepared.load):,} requests: "
        f"about {duration_text(load_s)} of load by prediction, starts not included",
    ]


def _write_files(prepared: Prepared, run: Path, folder: Path, *, quiet: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file", where="--write", hint="allowed: a folder's name")
    files = launch_files(prepared, str(run))
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if name.endswith(".sh"):
            path.chmod(EXECUTABLE)
    print("\n".join(pick_lines(prepared.picks)))
    print_note(f"written to {folder}: start with its README.md", quiet=quiet)


def _measure(
    prepared: Prepared,
    folder: VerificationFolder,
    where: str,
    options: TargetOptions,
    *,
    repeats: int,
    warmup: int,
    quiet: bool,
) -> list[Measured]:
    def target_for(turn: Turn) -> Target:
        return find_target(where, replace(options, folder=folder.logs(turn)))

    def tell(line: str) -> None:
        print_note(line, quiet=quiet)

    with Bar(repeats * len(prepared.picks), tell, is_silent=quiet) as bar:
        return measure(prepared, folder, target_for, repeats=repeats, warmup=warmup, listener=bar)
