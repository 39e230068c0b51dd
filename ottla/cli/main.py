"""Defines the `ottla` command line. The module of a command is imported when it is called, so that `--help` answers at
once."""

import gc
import io
import sys
from importlib import import_module
from typing import Any

import click

from ottla.cli.options import CommandGroup
from ottla.cli.output import for_stream

# Imported objects are long-lived. By default the collector would scan them repeatedly at every start.
gc.set_threshold(200_000, 20, 100)

COMMANDS = {
    "serve": "Run a broker.",
    "cluster": "Run several brokers on this host.",
    "brokers": "List brokers, and move all replicas away from some.",
    "topics": "List, describe, create, alter and delete topics.",
    "groups": "List, describe and delete groups, and change their offsets.",
    "configs": "Describe and change configurations.",
    "quotas": "Describe, set and remove quotas of clients.",
    "acls": "List, add and remove ACLs.",
    "users": "List, add and remove users who authenticate by SCRAM.",
    "remote": "List, check and restore the segments in the remote store.",
    "transactions": "List transactions, find those that hang, abort them.",
    "features": "Describe, raise and lower the features of a cluster.",
    "console": "Show a cluster in the browser, and change it.",
    "doctor": "Find what is wrong with a host and a cluster.",
    "profiles": "List, describe and change the profiles of clusters.",
    "metadata": "Move a stopped cluster's metadata to a ZooKeeper, and back.",
    "log-dirs": "Show the log directories of brokers, and the replicas in them.",
    "produce": "Write records to a topic.",
    "consume": "Print records of topics.",
    "dump-log": "Print log files, or check a data directory.",
    "validate": "Show with Spark that a cluster keeps every record.",
}


class LazyGroup(CommandGroup):
    """Knows the names and one-line helps of its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of COMMANDS: the most used ones first."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command: `NAME`, or `NAME/command` for one of several modules. The console is a package of its own."""
        if cmd_name not in COMMANDS:
            if ctx.resilient_parsing or cmd_name.startswith("-"):
                return None
            raise click.NoSuchCommand(cmd_name, possibilities=COMMANDS, ctx=ctx)
        name = cmd_name.replace("-", "_")
        module = import_module("ottla.console" if name == "console" else f"ottla.cli.{name}")
        if hasattr(module, "__path__"):
            module = import_module(f"{module.__name__}.command")
        command = getattr(module, name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """See click.Group. An argument that an error repeats may be copied from a list of names, and moves no cursor of a terminal."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            told = error.format_message()
            shown = for_stream(told, sys.stderr)
            if shown == told:
                raise
            raise click.UsageError(shown, error.ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, from COMMANDS alone."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _show_version(ctx: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if not is_wanted or ctx.resilient_parsing:
        return
    from ottla.broker.build import EMULATES, version
    from ottla.protocol.compiled import describe

    click.echo(f"ottla {version()}, emulates {EMULATES}; Python {sys.version.split()[0]}, hot path {describe()}")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version and exit.")
def main() -> None:
    """Ottla, a broker that speaks the Kafka wire protocol."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a path may have bytes that are no text


if __name__ == "__main__":
    main(prog_name="ottla")
