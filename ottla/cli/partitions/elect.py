"""Implements `ottla topics elect`: elects preferred leaders, or unclean leaders for partitions without one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ottla.cli.options import cluster_command, json_option, topic_partitions
from ottla.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster


@click.command()
@click.argument("names", nargs=-1, metavar="TOPIC[:PARTITIONS]...")
@click.option("--all", "everything", is_flag=True, help="All partitions of the cluster.")
@click.option("--unclean", is_flag=True, help="If a partition has no leader, elect a replica that is not in sync: records may be lost.")
@json_option
@cluster_command
def elect(cluster: Cluster, names: tuple[str, ...], everything: bool, unclean: bool, as_json: bool) -> None:
    """Elect leaders: the preferred (first) replicas, or with --unclean any live one.

    The exit status is 1 if an election failed. An election that was not needed is no failure.
    """
    from ottla.client.errors import Refused
    from ottla.client.reassignments import elect as elect_leaders
    from ottla.protocol.errors import ErrorCode

    if bool(names) is everything:
        raise click.UsageError("Name topics or give --all.")
    outcomes = elect_leaders(cluster, topic_partitions(cluster, names) if names else None, unclean=unclean)
    rows = []
    failed = False
    for name, error in sorted(outcomes.items()):
        needless = isinstance(error, Refused) and error.code is ErrorCode.ELECTION_NOT_NEEDED
        failed |= error is not None and not needless
        result = "elected" if error is None else "not needed" if needless else str(error).removeprefix(f"{name}: ")
        rows.append((name.topic, name.partition, result))
    if as_json:
        print_json([{"topic": topic, "partition": partition, "result": result} for topic, partition, result in rows])
    else:
        print_table(("topic", "partition", "result"), rows)
        if not rows:
            say("no partition needs an election")
    sys.stdout.flush()
    if failed:
        raise SystemExit(1)
