"""The command line: parse, call one function, print. Commands load only when they run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from cyclopts import App, CycloptsError

import dynosim
from dynosim.hardware_models.errors import UserError
from dynosim.terminal import print_error
from dynosim.usage import usage_error

EXIT_INTERNAL, EXIT_USER, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 1, 2, 130, 141

COMMANDS = {
    "simulate": "Simulate one deployment under a workload: latency, throughput, goodput, cost.",
    "capacity": "Find the most users, or requests a second, whose latency stays within limits.",
    "search": "Search a space of deployments for the latency-versus-throughput Pareto frontier.",
    "inspect": "Explain a search: what decided it, and why a trial is or is not on its frontier.",
    "report": "Write the HTML report and the figures of a search anew, from its output folder.",
    "verify": "Measure a few trials of a search on a real engine, and score its frontier anew.",
    "plan": "Say how many of which GPU a demand needs, and what that costs.",
    "explain": "Say what each layer adds on the way from a baseline to a tuned deployment.",
    "compare": "Compare results side by side: metrics, change, winner.",
    "export": "Write launch files or benchmark commands of a deployment, in a vendor's spelling.",
    "validate": "Compare predictions with runs measured on real GPUs, and show the errors.",
    "memory": "Show where GPU memory goes, how many KV-cache tokens remain, and what fits.",
    "startup": "Show what passes until a new replica serves, stage by stage.",
    "list": "List the GPUs, models or backends that the other commands know.",
}

GROUPS = {
    "calibrate": (
        "Fit dynosim to hardware and engines that you can measure.",
        {
            "measure": "Measure the ops of a serving engine on the GPU (or CPU) at hand.",
            "fit": "Fit a backend's overheads to measured serving runs.",
            "steps": "Fit kernel tables and host overheads to the steps that an engine ran.",
        },
    ),
}
"""Commands of commands: what the group is for, and the commands in it."""


def build_app() -> App:
    """Returns the application; each command is an import path that resolves when it is called."""
    app = _commands()
    app.register_install_completion_command(
        help="Install completion for your shell (bash, zsh, fish)."
    )
    return app


def _commands() -> App:
    app = App(
        name="dynosim",
        help=dynosim.__doc__,
        version=dynosim.__version__,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for name, text in COMMANDS.items():
        app.command(f"dynosim.commands.{name}:{name}_command", name=name, help=text)
    for group, (purpose, commands) in GROUPS.items():
        inner = App(name=group, help=purpose, version_flags=())
        for name, text in commands.items():
            path = f"dynosim.commands.{group}_{name}:{group}_{name}_command"
            inner.command(path, name=name, help=text)
        app.command(inner)
    return app


def _call(argv: list[str]) -> Any:
    """Parses the command line and returns what its command returns; raises CycloptsError."""
    if argv and argv[0] in COMMANDS and not {"--help", "-h"} & set(argv):
        from dynosim.flags import only_those_of

        try:
            with only_those_of(argv):
                return _commands()(argv, exit_on_error=False, print_error=False)
        except CycloptsError:
            # Whoever explains a mistake has to know every flag.
            pass
    return build_app()(argv, exit_on_error=False, print_error=False)


def run(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 done, 1 a defect of dynosim, 2 the user's input, 130 Ctrl-C.

    141 where the reader of a pipe went away. That something does not fit, or that no fleet serves
    a demand, is an answer.
    """
    # Matrices here are small: threads of BLAS would spin longer than they compute. NumPy, which
    # reads this when it loads, is not there yet; worker processes inherit it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        code = _call(list(argv))
        sys.stdout.flush()
    except UserError as error:
        print_error(str(error))
        return EXIT_USER
    except CycloptsError as error:
        print_error(str(usage_error(error, [*COMMANDS, *GROUPS])))
        return EXIT_USER
    except KeyboardInterrupt:
        print_error("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader is gone; whatever Python still holds for it must not raise at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except Exception as error:
        if "--debug" in argv:
            raise
        print_error(
            f"{type(error).__name__}: {error}\n"
            "  This is a defect of dynosim, not of your input; --debug shows the traceback."
        )
        return EXIT_INTERNAL
    return code or 0
