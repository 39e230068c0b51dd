"""`ottla validate`: hands over to the data pipeline, a Spark job of its own package with options of its own.

The floors know nothing of the benchmarks: this process becomes `python -m benchmarks.pipeline`.
"""

import os
import sys

import click


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def validate(arguments: tuple[str, ...]) -> None:
    """Show with Spark whether a cluster keeps every record, in order, once, and how fast."""
    # -P: a folder named benchmarks where the user happens to be is not ours.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "benchmarks.pipeline", *arguments])
