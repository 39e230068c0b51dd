"""`python -m broker` is `ottla`."""

from broker.cli.main import main

if __name__ == "__main__":
    main(prog_name="ottla")
