"""Implements `ottla brokers`: lists the live brokers of a cluster with the partitions that they lead and hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.cli.options import cluster_command, json_option
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster


@click.command()
@json_option
@cluster_command
def brokers(cluster: Cluster, as_json: bool) -> None:
    """List the live brokers: addresses, racks, partitions that each leads, holds, and is not in sync for."""
    answer = cluster.refresh(None)
    partitions = [partition for topic in answer.topics for partition in topic.partitions]
    found = [
        {
            "id": broker.node_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "controller": broker.node_id == answer.controller_id,
            "leads": sum(partition.leader_id == broker.node_id for partition in partitions),
            "replicas": sum(broker.node_id in partition.replica_nodes for partition in partitions),
            "behind": sum(
                broker.node_id in partition.replica_nodes and broker.node_id not in partition.isr_nodes for partition in partitions
            ),
        }
        for broker in sorted(answer.brokers, key=lambda broker: broker.node_id)
    ]
    if as_json:
        print_json({"cluster_id": answer.cluster_id, "brokers": found})
        return
    columns = ("id", "host", "port", "rack", "controller", "leads", "replicas", "behind")
    print_table(
        columns, [[broker[column] for column in columns] for broker in found], title=f"cluster {answer.cluster_id or 'without an id'}"
    )
