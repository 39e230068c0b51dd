"""Implements `ottla brokers`: lists the live brokers of a cluster, and moves all replicas away from some of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ottla.cli.options import cluster_command, command_group, json_option
from ottla.cli.output import Advance, counted, for_stream, print_json, print_table, progress_bar, say
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster


broker_ids = click.argument("ids", nargs=-1, required=True, type=click.IntRange(min=0), metavar="ID...")
throttle_option = click.option(
    "--throttle", "rate", type=click.IntRange(min=1), metavar="BYTES", help="Replication throttle, bytes per second and broker."
)
at_once_option = click.option("--at-once", type=click.IntRange(min=1), default=100, show_default=True, help="Partitions moved at a time.")
racks_option = click.option("--ignore-racks", is_flag=True, help="Allow partitions to be on fewer racks than now.")


@command_group
def brokers() -> None:
    """List the brokers of a cluster, and move all replicas away from some of them."""


@brokers.command("list")
@json_option
@cluster_command
def list_brokers(cluster: Cluster, as_json: bool) -> None:
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


@brokers.command()
@broker_ids
@throttle_option
@at_once_option
@racks_option
@click.option("--dry-run", "only_plan", is_flag=True, help="Show what would be moved, and move nothing.")
@json_option
@cluster_command
def drain(
    cluster: Cluster, ids: tuple[int, ...], rate: int | None, at_once: int, ignore_racks: bool, only_plan: bool, as_json: bool
) -> None:
    """Move all replicas away from brokers, those of internal topics as well.

    A partition keeps all its replicas meanwhile. The same command continues a drain that was interrupted. The brokers stay alive, and get
    the replicas of new topics again: stop them, or use `decommission`.
    """
    if only_plan:
        _show_plan(cluster, ids, ignore_racks, as_json=as_json)
        return
    moved = _drain(cluster, ids, rate, at_once, ignore_racks)
    _report(ids, moved, {}, as_json=as_json)


@brokers.command()
@broker_ids
@throttle_option
@at_once_option
@racks_option
@json_option
@cluster_command
def decommission(cluster: Cluster, ids: tuple[int, ...], rate: int | None, at_once: int, ignore_racks: bool, as_json: bool) -> None:
    """Drain brokers, and delete their dynamic configurations, so that nothing of them is left once they are stopped.

    Stop the brokers when this command has ended. A broker may be dead already: its replicas are made anew from those of others, and its
    dynamic configuration stays.
    """
    from ottla.client.drain import forget_settings

    moved = _drain(cluster, ids, rate, at_once, ignore_racks)
    alive = set(cluster.broker_ids())
    deleted = {broker: forget_settings(cluster, broker) for broker in ids if broker in alive}
    dead = sorted(set(ids) - alive)
    if dead:
        say(f"dynamic configurations of dead brokers stay, because only a live broker deletes its own: {', '.join(map(str, dead))}")
    _report(ids, moved, deleted, as_json=as_json)


def _drain(cluster: Cluster, ids: tuple[int, ...], rate: int | None, at_once: int, ignore_racks: bool) -> int:
    from ottla.client import drain

    leaving = _known(cluster, ids)
    with progress_bar("moving", None, unit="partitions") as advance, _continuation_told(advance, rate is not None) as told:
        return drain.drain(cluster, leaving, told, at_once=at_once, rate=rate, ignore_racks=ignore_racks)


def _known(cluster: Cluster, ids: tuple[int, ...]) -> set[int]:
    """Raises ClientError for a broker that is neither alive nor has replicas."""
    from ottla.client.drain import left_on

    leaving = set(ids)
    alive = cluster.broker_ids()
    unknown = [str(broker) for broker in sorted(leaving.difference(alive)) if not left_on(cluster, {broker})]
    if unknown:
        raise ClientError(f"there is no broker {', '.join(unknown)}; alive are {', '.join(map(str, alive))}")
    return leaving


@contextmanager
def _continuation_told(advance: Advance, is_throttled: bool) -> Iterator[Advance]:
    """Gives `advance` on; tells how to continue if this block fails or is interrupted after moves have begun."""
    has_begun = False

    def told(done: int, total: int) -> None:
        nonlocal has_begun
        has_begun = True
        advance(done, total)

    try:
        yield told
    except (ClientError, KeyboardInterrupt):
        if has_begun:
            throttles = "; replication throttles may be left until then" if is_throttled else ""
            say(f"partitions whose move has begun are moved to the end; the same command continues with the others{throttles}")
        raise


def _show_plan(cluster: Cluster, ids: tuple[int, ...], ignore_racks: bool, *, as_json: bool) -> None:
    from ottla.client.drain import left_on, plan_of
    from ottla.client.reassignment_plan import to_json

    leaving = _known(cluster, ids)
    current = left_on(cluster, leaving)
    plan = plan_of(cluster, leaving, ignore_racks=ignore_racks)
    if as_json:
        print_json(to_json(plan))
        return
    print_table(
        ("topic", "partition", "now", "planned"), [[name.topic, name.partition, current.get(name, ()), new] for name, new in plan.items()]
    )


def _report(ids: tuple[int, ...], moved: int, deleted: dict[int, list[str]], *, as_json: bool) -> None:
    if as_json:
        print_json({"brokers": sorted(set(ids)), "moved_partitions": moved, "deleted_configurations": deleted})
        return
    for broker in sorted(set(ids)):
        settings = f"; deleted: {', '.join(deleted[broker])}" if deleted.get(broker) else ""
        print(for_stream(f"broker {broker} holds no replicas{settings}", sys.stdout))
    print(f"{counted(moved, 'partition')} {'was' if moved == 1 else 'were'} moved")
