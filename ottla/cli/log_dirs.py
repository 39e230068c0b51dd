"""Implements `ottla log-dirs`: shows the log directories of brokers, their disks, and the replicas in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.cli.options import cluster_command, fail, json_option, numbers, topic_partitions
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.client.log_dirs import LogDir


@click.command("log-dirs")
@click.argument("names", nargs=-1, metavar="[TOPIC[:PARTITIONS]]...")
@click.option("--broker", "broker_ids", metavar="0,2-4", help="Only directories of these brokers.")
@click.option("--replicas", is_flag=True, help="A line for each replica instead of one for each directory.")
@json_option
@cluster_command
def log_dirs(cluster: Cluster, names: tuple[str, ...], broker_ids: str | None, replicas: bool, as_json: bool) -> None:
    """Show the log directories of all brokers, with the bytes of the replicas in them.

    With TOPICs only replicas of those are counted and listed. Status 1 when a directory is offline, or a broker does not answer.
    """
    from ottla.client.log_dirs import log_dirs as log_dirs_of
    from ottla.client.reachable import of_brokers

    wanted = topic_partitions(cluster, names) if names else None
    asked = numbers(broker_ids) if broker_ids else None
    by_broker, errors = of_brokers(cluster, lambda own, broker: log_dirs_of(own, broker, wanted), asked)
    found = [each for of_one in by_broker.values() for each in of_one]
    if not by_broker:
        fail(map(str, errors.values()))
    if as_json:
        print_json([_json(each) for each in found])
    elif replicas:
        rows = [
            [each.broker, each.path, *replica.partition, replica.bytes, replica.lag, replica.is_future]
            for each in found
            for replica in each.replicas
        ]
        print_table(("broker", "directory", "topic", "partition", "bytes", "lag", "future"), rows)
    else:
        rows = [
            [each.broker, each.path, len(each.replicas), sum(replica.bytes for replica in each.replicas), each.usable_bytes,
             each.total_bytes, each.error]
            for each in found
        ]  # fmt: skip
        print_table(("broker", "directory", "replicas", "bytes", "disk usable", "disk total", "error"), rows)
    offline = [f"broker {each.broker}: {each.path} is offline ({each.error})" for each in found if each.error is not None]
    fail([*map(str, errors.values()), *offline])


def _json(found: LogDir) -> dict[str, object]:
    replicas = [
        {**replica.partition._asdict(), "bytes": replica.bytes, "lag": replica.lag, "future": replica.is_future}
        for replica in found.replicas
    ]
    return {**found._asdict(), "replicas": replicas}
