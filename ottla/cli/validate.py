"""Implements `ottla validate`: replaces itself by the data pipeline, a Spark job of its own package with options of its
own.

The floors do not depend on the benchmarks: this process becomes that of the module `ottla.validate`.
"""

import os
import sys

import click

from ottla.launcher import command


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def validate(arguments: tuple[str, ...]) -> None:
    """Check with Spark whether a cluster keeps every record, in order, once, and how fast."""
    os.execv(sys.executable, command("ottla.validate", *arguments))
