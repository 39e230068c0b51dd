"""Runs the command line: `python -m ottla` is the same as `ottla`."""

import sys


def main() -> None:
    """Run a command of `ottla`, and end the process."""
    if sys.hexversion < 0x030B0000:  # a checkout can be run by any Python; an installer refuses
        sys.exit(f"ottla: Python 3.11 or newer is needed, and {sys.executable} is {sys.version.split()[0]}: run it with another")
    from ottla.cli.main import main as ottla

    ottla(prog_name="ottla")


if __name__ == "__main__":
    main()
