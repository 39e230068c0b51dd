"""Implements `ottla remote`: shows what `__remote_log_metadata` says of the segments in the remote store (tiered storage)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.cli.options import cluster_command, command_group, json_option
from ottla.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.storage.remote.entries import SegmentEntry

_POLL_SECONDS = 1.0
_COLUMNS = ("topic", "partition", "state", "start", "end", "bytes", "epochs", "max timestamp", "broker", "segment")


@command_group
def remote() -> None:
    """Show the segments that topics with tiered storage have in the remote store."""


@remote.command(name="list")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--unfinished", is_flag=True, help="Only copies that are not finished, being deleted, or replaced by another copy.")
@json_option
@cluster_command
def list_(cluster: Cluster, topics: tuple[str, ...], unfinished: bool, as_json: bool) -> None:
    """List the copies of segments by topic, partition and offset, also those of deleted topics.

    Consumers read COPY_SEGMENT_FINISHED copies that no other copy replaces. A broker deletes all others after a time.
    """
    found = [
        (entry, is_read)
        for entry, is_read in sorted(_entries(cluster), key=lambda each: (*each[0].id.partition[1:], each[0].start_offset))
        if (not topics or entry.id.partition.topic in topics) and not (unfinished and is_read)
    ]
    if as_json:
        print_json([_json(entry, is_read=is_read) for entry, is_read in found])
        return
    print_table(_COLUMNS, [_row(entry, is_read=is_read) for entry, is_read in found])
    if not found:
        say("no copies of segments")


def _entries(cluster: Cluster) -> list[tuple[SegmentEntry, bool]]:
    """All entries, and whether consumers read them."""
    from ottla.client.fetcher import Fetcher
    from ottla.client.offsets import end_offsets, start_offsets
    from ottla.protocol.topic_partition import TopicPartition
    from ottla.storage.remote.metadata.log import METADATA_TOPIC, MetadataLog
    from ottla.storage.remote.metadata.records import partition_of

    names = [TopicPartition(METADATA_TOPIC, index) for index in cluster.partitions(METADATA_TOPIC)]
    logs = {name: MetadataLog(name.partition) for name in names}
    starts, ends = start_offsets(cluster, names), end_offsets(cluster, names)
    with Fetcher(cluster, {name: starts[name] for name in names if starts[name] < ends[name]}) as fetcher:
        while fetcher.positions:
            for batch in fetcher.poll(_POLL_SECONDS):
                log = logs[batch.partition]
                for record in batch.records:
                    partition = partition_of(record.value)
                    if partition is not None:
                        log.know(partition)
                    log.take_record(record.value, record.offset)
                if batch.next_offset >= ends[batch.partition]:
                    fetcher.positions.pop(batch.partition, None)
    caches = [each.cache for log in logs.values() for each in log.followed.values()]
    read = {key for cache in caches for epoch in cache.epochs.values() for key in epoch.keys}
    return [(entry, int.from_bytes(entry.id.uuid, "big") in read) for cache in caches for entry in cache.all_entries()]


def _row(entry: SegmentEntry, *, is_read: bool) -> list[object]:
    from ottla.protocol.uuid import to_text

    epochs = ",".join(map(str, entry.leader_epochs))
    state = entry.state.name if is_read or entry.state.name != "COPY_SEGMENT_FINISHED" else "replaced"
    topic, index = entry.id.partition.topic, entry.id.partition.partition
    return [
        topic, index, state, entry.start_offset, entry.end_offset, entry.size, epochs, entry.max_timestamp_ms, entry.broker_id,
        to_text(entry.id.uuid),
    ]  # fmt: skip


def _json(entry: SegmentEntry, *, is_read: bool) -> dict[str, object]:
    from ottla.protocol.uuid import to_text

    return {
        "topic": entry.id.partition.topic,
        "topic_id": to_text(entry.id.partition.topic_id),
        "partition": entry.id.partition.partition,
        "segment": to_text(entry.id.uuid),
        "state": entry.state.name,
        "is_read": is_read,
        "start_offset": entry.start_offset,
        "end_offset": entry.end_offset,
        "bytes": entry.size,
        "leader_epochs": {str(epoch): offset for epoch, offset in entry.leader_epochs.items()},
        "max_timestamp_ms": entry.max_timestamp_ms,
        "event_timestamp_ms": entry.event_timestamp_ms,
        "broker": entry.broker_id,
        "custom_metadata": None if entry.custom is None else entry.custom.hex(),
    }
