"""Runs the command line: `python -m broker` is the same as `ottla`."""

from ottla.cli.main import main

if __name__ == "__main__":
    main(prog_name="ottla")
