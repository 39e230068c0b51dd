"""Implements `ottla remote`: shows what `__remote_log_metadata` says of the segments in the remote store (tiered storage)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.options import cluster_command, command_group, fail, json_option
from ottla.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.storage.remote.entries import SegmentEntry

_POLL_SECONDS = 1.0
_COLUMNS = ("topic", "partition", "state", "start", "end", "bytes", "epochs", "max timestamp", "broker", "segment")


@command_group
def remote() -> None:
    """Show and check the segments that topics with tiered storage have in the remote store."""


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


@remote.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--config",
    "config_file",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The server.properties of a broker, which name the remote store.",
)
@json_option
@cluster_command
def check(cluster: Cluster, topics: tuple[str, ...], config_file: Path, as_json: bool) -> None:
    """Check that the remote store has all segments that consumers may read.

    Of each copy the indexes and the end of the records are read. Status 1 if a copy is missing, shorter than its entry, or cannot be read.
    """
    from ottla.config.errors import ConfigError

    wanted = [entry for entry, is_read in _entries(cluster) if is_read and (not topics or entry.id.partition.topic in topics)]
    try:
        faults = asyncio.run(_faults(config_file, wanted))
    except ConfigError as error:
        fail([str(error)])
        return
    if as_json:
        print_json([{**_json(entry, is_read=True), "fault": fault} for entry, fault in faults])
    else:
        print_table((*_COLUMNS, "fault"), [[*_row(entry, is_read=True), fault] for entry, fault in faults])
        say(f"{len(wanted) - len(faults)} of {len(wanted)} copies are complete")
    if faults:
        fail([f"{len(faults)} copies are not complete"])


async def _faults(config_file: Path, entries: list[SegmentEntry]) -> list[tuple[SegmentEntry, str]]:
    """The copies that are not complete, and why. Raises ConfigError."""
    from concurrent.futures import ThreadPoolExecutor

    from ottla.broker.loop.clock import SystemClock
    from ottla.broker.remote.remote_storage import RemoteStorage
    from ottla.config.broker import BrokerConfig
    from ottla.config.loader import load_properties
    from ottla.storage.disk.filesystem import RealFileSystem
    from ottla.storage.remote.ports import IndexKind, RemoteStoreError

    faults = []
    with ThreadPoolExecutor(2) as threads:
        storage = RemoteStorage(BrokerConfig(load_properties(config_file, os.environ)), RealFileSystem(), threads, SystemClock())
        try:
            await storage.probe()
            for entry in entries:
                try:
                    await storage.store.fetch(entry, entry.size - 1, entry.size)
                    for kind in IndexKind:
                        await storage.store.index(entry, kind)
                except RemoteStoreError as error:
                    faults.append((entry, str(error)))
        finally:
            await storage.store.close()
    return faults


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
