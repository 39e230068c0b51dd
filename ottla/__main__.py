"""Runs the command line: `python -m ottla` is the same as `ottla`."""

import sys
from pathlib import Path


def main() -> None:
    """Run a command of `ottla`, and end the process."""
    if sys.hexversion < 0x030B0000:  # a checkout can be run by any Python; an installer refuses
        sys.exit(f"ottla: Python 3.11 or newer is needed, and {sys.executable} is {sys.version.split()[0]}: run it with another")
    try:
        from ottla.cli.main import main as ottla

        ottla(prog_name="ottla")
    except ModuleNotFoundError as missing:
        root = Path(__file__).resolve().parents[1]
        if missing.name is None or not (root / missing.name.removeprefix("ottla.")).is_dir():
            raise
        sys.exit(f"ottla: the links in {root / 'ottla'} are missing: `python3 {root / 'start.py'} install` makes them again")


if __name__ == "__main__":
    main()
