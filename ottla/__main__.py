"""Runs the command line: `python -m ottla` is the same as `ottla`."""

from ottla.launcher import use_floors


def main() -> None:
    """Run a command of `ottla`, and end the process."""
    use_floors()
    from broker.cli.main import main as ottla

    ottla(prog_name="ottla")


if __name__ == "__main__":
    main()
