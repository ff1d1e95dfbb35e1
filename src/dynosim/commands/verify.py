"""``dynosim verify``: a few trials of a search on a real engine, and what that says of the rest."""

from __future__ import annotations

import gc
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from dynosim.flags import Debug, Json, Quiet
from dynosim.hardware_models.errors import UserError
from dynosim.planning.exports.base import Candidate
from dynosim.search.identity import workload_sha256
from dynosim.search.saved_run import SavedRun, load_run
from dynosim.terminal import print_json, print_note
from dynosim.verification.conclusion import Feedback, conclude
from dynosim.verification.document import document, pick_row, short
from dynosim.verification.find_target import find_target, refusal
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


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class What:
    """What is measured."""

    top: Annotated[
        int | None,
        Parameter(
            metavar="INT",
            help="Points of the frontier to measure, the recommended one first. [default: 3, or 1 "
            "with --url]",
        ),
    ] = None
    dominated: Annotated[
        int, Parameter(metavar="INT", help="Dominated trials to measure too, as controls.")
    ] = 0
    trials: Annotated[
        tuple[int, ...],
        Parameter(
            consume_multiple=True,
            negative=(),
            show_default=False,
            metavar="INT...",
            help="Measure these trials instead.",
        ),
    ] = ()
    repeats: Annotated[
        int,
        Parameter(metavar="INT", help="Measurements of each trial, in rounds; medians count."),
    ] = 3
    num_prompts: Annotated[
        int | None,
        Parameter(
            metavar="INT",
            help="Send only so many requests; predictions are then made anew for these.",
        ),
    ] = None
    warmup: Annotated[int, Parameter(metavar="INT", help="Requests before each measurement.")] = (
        WARM_UP
    )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Where:
    """Where it is measured: one of the first four."""

    target: Annotated[
        str | None,
        Parameter(
            metavar="NAME",
            help="Run each trial here: local-vllm starts `vllm serve` and stops it.",
        ),
    ] = None
    url: Annotated[
        str | None,
        Parameter(metavar="URL", help="Measure the engine that is up here; it runs one trial."),
    ] = None
    write: Annotated[
        Path | None,
        Parameter(
            metavar="DIR",
            help="Measure nothing: write launch files and commands that send the load here.",
        ),
    ] = None
    results: Annotated[
        tuple[str, ...],
        Parameter(
            consume_multiple=True,
            negative=(),
            show_default=False,
            metavar="[TRIAL=]FILE...",
            help="Take result files of vllm bench, AIPerf, GenAI-Perf, GuideLLM, inference-perf or "
            "SGLang as the measurements; a path with trial-12 in it tells its trial.",
        ),
    ] = ()
    served_model_name: Annotated[
        str | None,
        Parameter(metavar="NAME", help="Name the engine serves under; by default the model's."),
    ] = None
    api_key_env: Annotated[
        str | None,
        Parameter(metavar="VARIABLE", help="Environment variable with the API key; never written."),
    ] = None
    header_env: Annotated[
        str | None,
        Parameter(
            metavar="VARIABLE",
            help="Environment variable with more headers, as `Name: value` lines; never written.",
        ),
    ] = None
    vllm_command: Annotated[
        str,
        Parameter(
            metavar="WORDS",
            show_default=False,
            help="What starts vLLM where that is not `vllm`; for targets in a process, its Python.",
        ),
    ] = ""
    engine_args: Annotated[
        str,
        Parameter(
            metavar="WORDS",
            show_default=False,
            allow_leading_hyphen=True,
            help="More arguments of the engine, as in '--dtype float32 --enforce-eager'.",
        ),
    ] = ""
    device: Annotated[
        Literal["auto", "cpu", "cuda"], Parameter(help="What a target in a process runs on.")
    ] = "auto"
    start_timeout: Annotated[
        float, Parameter(metavar="SECONDS", help="Longest that an engine may take to be healthy.")
    ] = 1800
    run_timeout: Annotated[
        float, Parameter(metavar="SECONDS", help="Longest that one measurement may take.")
    ] = 3600
    request_timeout: Annotated[
        float, Parameter(metavar="SECONDS", help="Longest that one answer may take.")
    ] = 600

    @property
    def name(self) -> str:
        """The target's name; of files of other tools ``results``."""
        return self.target or ("results" if self.results else "url")

    def check(self, *, dry_run: bool) -> None:
        """Raises UserError unless exactly one way to measure was given."""
        ways = {
            "--target": self.target,
            "--url": self.url,
            "--write": self.write,
            "--results": self.results,
        }
        given = [flag for flag, value in ways.items() if value]
        if len(given) > 1:
            raise UserError(f"{' and '.join(given)} exclude each other")
        if not given and not dry_run:
            hint = f"give one of {', '.join(ways)}; --dry-run shows what would be measured"
            raise UserError("where to measure?", where="--target", hint=hint)

    def runs(self, candidate: Candidate) -> bool:
        """Returns whether a candidate can run here, as far as that is known."""
        return self.target is None or refusal(self.target, candidate) is None

    def options(self, folder: Path) -> TargetOptions:
        """Returns what a target is made from."""
        return TargetOptions(
            folder=folder,
            url=self.url,
            model=self.served_model_name,
            api_key_env=self.api_key_env,
            header_env=self.header_env,
            command=tuple(shlex.split(self.vllm_command)),
            arguments=tuple(shlex.split(self.engine_args)),
            device=self.device,
            start_timeout_s=self.start_timeout,
            run_timeout_s=self.run_timeout,
            request_timeout_s=self.request_timeout,
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class How:
    """What becomes of what was measured."""

    rescore: Annotated[
        Feedback,
        Parameter(
            help="How the frontier is scored anew: by the ratios of measured to predicted, by "
            "simulating its short list with fitted overheads, or not at all."
        ),
    ] = "ratios"
    jobs: Annotated[
        int | None,
        Parameter(metavar="INT", help="Processes that simulate for the fit; by default one a CPU."),
    ] = None
    resume: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Keep what was measured, and measure what is missing.",
        ),
    ] = False
    overwrite: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Measure anew what was measured.")
    ] = False
    dry_run: Annotated[
        bool,
        Parameter(
            negative=(), show_default=False, help="Say what would be measured, and for how long."
        ),
    ] = False
    json: Json = False


def verify_command(
    run: Run,
    *,
    what: What = What(),
    where: Where = Where(),
    how: How = How(),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure a few trials of a search on a real engine, compare, and score the frontier anew.

    Everything is kept in the folder `verification` of the run.
    """
    gc.enable()
    where.check(dry_run=how.dry_run)
    files = trials_of(where.results)
    saved = load_run(run, has_estimates=False)
    prepared = prepare(saved, _selection(what, where, tuple(files)), where.runs)
    if how.dry_run:
        _print_plan(prepared, what, is_json=how.json)
    elif where.write is not None:
        _write_files(prepared, run, where.write, is_json=how.json, quiet=quiet)
    else:
        about = _about(saved, prepared, what, where)
        _verify(run, prepared, files, about, what, where, how, quiet=quiet)


def _verify(
    run: Path,
    prepared: Prepared,
    files: Mapping[int, Sequence[Path]],
    about: Mapping[str, Any],
    what: What,
    where: Where,
    how: How,
    *,
    quiet: bool,
) -> None:
    """Measures or reads, concludes, writes and prints."""
    # Files of other tools stand beside what was measured here, and replace nothing of it.
    identity = None if files else {k: about[k] for k in ("run", "load", "target")}
    if not files:
        _check(prepared, where)
    with VerificationFolder(run, identity, resume=how.resume, overwrite=how.overwrite) as folder:
        if files:
            measured = measured_from(prepared, files)
        else:
            measured = _measure(prepared, folder, what, where, quiet=quiet)
        found = conclude(
            prepared,
            measured,
            feedback=how.rescore,
            folder=folder,
            jobs=how.jobs or os.cpu_count() or 1,
            tell=_teller(quiet),
        )
        write_outputs(folder, found, about)
    if how.json:
        print_json(document(found, about))
    else:
        print_conclusion(found)
    print_note(f"written to {folder.path}", quiet=quiet)


def _selection(what: What, where: Where, of_files: tuple[int, ...]) -> Selection:
    top = what.top if what.top is not None else 1 if where.url else TOP
    return Selection(
        top=top,
        dominated=what.dominated,
        trials=of_files or what.trials,
        num_prompts=what.num_prompts,
    )


def _teller(quiet: bool) -> Callable[[str], None]:
    def tell(line: str) -> None:
        print_note(line, quiet=quiet)

    return tell


def _check(prepared: Prepared, where: Where) -> None:
    """Raises UserError for what is wrong with a target, before anything is written."""
    if where.url and len(prepared.picks) > 1:
        hint = "name it: --trials 12; or let --target local-vllm start one engine a trial"
        raise UserError("an engine that is up runs one trial", where="--url", hint=hint)
    find_target(where.name, where.options(Path()))


def _about(saved: SavedRun, prepared: Prepared, what: What, where: Where) -> dict[str, Any]:
    """Returns what was measured and where; no address, no key."""
    return {
        "run": saved.manifest["space_sha256"][:12],
        "load": workload_sha256(prepared.load)[:12],
        "target": where.name,
        "requests": len(prepared.load),
        "rounds": what.repeats,
    }


def _print_plan(prepared: Prepared, what: What, *, is_json: bool) -> None:
    if not is_json:
        print("\n".join(_plan_lines(prepared, what.repeats)))
        return
    rows = [pick_row(prepared, pick) for pick in prepared.picks]
    load_s = expected_s(prepared.picks, what.repeats)
    plan = {"requests": len(prepared.load), "rounds": what.repeats, "load_s": short(load_s)}
    print_json({"picks": rows, **plan})


def _plan_lines(prepared: Prepared, repeats: int) -> list[str]:
    load_s = expected_s(prepared.picks, repeats)
    return [
        *pick_lines(prepared.result, prepared.picks),
        f"{len(prepared.picks)} trials × {repeats} rounds of {len(prepared.load):,} requests: "
        f"about {duration_text(load_s)} of load by prediction, starts not included",
    ]


def _write_files(
    prepared: Prepared, run: Path, folder: Path, *, is_json: bool, quiet: bool
) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file", where="--write", hint="allowed: a folder's name")
    files = launch_files(prepared, str(run))
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if name.endswith(".sh"):
            path.chmod(EXECUTABLE)
    if is_json:
        rows = [pick_row(prepared, pick) for pick in prepared.picks]
        print_json({"picks": rows, "files": sorted(files), "written_to": str(folder)})
    else:
        print("\n".join(pick_lines(prepared.result, prepared.picks)))
    print_note(f"written to {folder}: start with its README.md", quiet=quiet)


def _measure(
    prepared: Prepared, folder: VerificationFolder, what: What, where: Where, *, quiet: bool
) -> list[Measured]:
    tell = _teller(quiet)
    for line in _plan_lines(prepared, what.repeats):
        tell(line)

    def target_for(turn: Turn) -> Target:
        return find_target(where.name, where.options(folder.logs(turn)))

    with Bar(what.repeats * len(prepared.picks), tell, is_silent=quiet) as bar:
        return measure(
            prepared,
            folder,
            target_for,
            repeats=what.repeats,
            warmup=what.warmup,
            listener=bar,
        )
