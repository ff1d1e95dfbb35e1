"""Runs the command line: ``dynosim``, or ``python -m dynosim``."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Runs the command line on ``sys.argv`` and exits."""
    # Simulations make few cycles and many objects: collecting would cost a tenth of the time, of
    # imports too. A search, which runs for longer, switches it on again.
    gc.disable()
    # Nothing here multiplies matrices; numpy's idle linear-algebra threads would burn CPU time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from dynosim.cli import run

    code = run(sys.argv[1:])
    sys.stderr.flush()
    # Freeing every request one by one on the way out would take longer than some commands.
    os._exit(code)


if __name__ == "__main__":
    main()
