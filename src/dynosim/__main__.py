"""Runs the command line: ``python -m dynosim``."""

from dynosim.cli import main

if __name__ == "__main__":
    main()
