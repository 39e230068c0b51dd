"""Tells which copies the metadata of a cluster know, and how they are printed."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cli.output import counted, say

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.storage.remote.entries import SegmentEntry, SegmentId, TopicIdPartition
    from ottla.storage.remote.metadata.log import MetadataLog
    from ottla.storage.remote.metadata.segment_cache import SegmentCache

_POLL_SECONDS: Final = 1.0
COLUMNS: Final = ("topic", "partition", "state", "start", "end", "bytes", "epochs", "max timestamp", "broker", "segment")


class CopyName(NamedTuple):
    """The names of the objects of a copy have its segment's id and its start offset."""

    segment: SegmentId
    start_offset: int


def known_copies(
    cluster: Cluster, chosen_partitions: Collection[TopicIdPartition] | None = None, *, seconds: float = math.inf
) -> list[tuple[SegmentEntry, bool]]:
    """The entries of `__remote_log_metadata`, and whether consumers read them, by topic, partition and offset.

    They are those of the chosen partitions, or of all. Raises ClientError, also if it takes longer than these seconds.
    """
    return copies_in(read_metadata(cluster, chosen_partitions, seconds=seconds))


def copies_in(caches: Iterable[SegmentCache]) -> list[tuple[SegmentEntry, bool]]:
    """The entries of these partitions as `known_copies` returns them."""
    caches = list(caches)
    read = {key for cache in caches for epoch in cache.epochs.values() for key in epoch.keys}
    found = [(entry, int.from_bytes(entry.id.uuid, "big") in read) for cache in caches for entry in cache.all_entries()]
    return sorted(found, key=lambda each: (*each[0].id.partition[1:], each[0].start_offset))


def read_metadata(
    cluster: Cluster,
    chosen_partitions: Collection[TopicIdPartition] | None = None,
    *,
    seconds: float = math.inf,
    described: set[CopyName] | None = None,
) -> list[SegmentCache]:
    """Reads `__remote_log_metadata`. Returns the entries of each partition of which it has records, also if they tell that all are gone.

    A line tells of records that are left out. `described` takes in all copies that have an entry, or had one. The other arguments and
    the errors are those of `known_copies`.
    """
    from ottla.client.errors import ConnectionLost, Refused
    from ottla.client.fetcher import Fetcher
    from ottla.client.offsets import end_offsets, start_offsets
    from ottla.protocol.errors import ErrorCode
    from ottla.protocol.topic_partition import TopicPartition
    from ottla.storage.remote.metadata.log import METADATA_TOPIC, MetadataLog
    from ottla.storage.remote.metadata.partitions import metadata_partition
    from ottla.storage.remote.metadata.records import partition_of

    until = time.monotonic() + seconds
    try:
        indexes = cluster.partitions(METADATA_TOPIC)
    except Refused as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            error.add("; no topic of this cluster has had tiered storage")
        raise
    logs = {TopicPartition(METADATA_TOPIC, index): MetadataLog(index, logs_skipped=False) for index in indexes}
    if chosen_partitions is not None:
        for each in chosen_partitions:
            logs[TopicPartition(METADATA_TOPIC, metadata_partition(each, len(indexes)))].know(each)
        logs = {name: log for name, log in logs.items() if log.followed}
    starts, ends = start_offsets(cluster, logs), end_offsets(cluster, logs)
    with Fetcher(cluster, {name: starts[name] for name in logs if starts[name] < ends[name]}) as fetcher:
        while fetcher.positions:
            if time.monotonic() >= until:
                raise ConnectionLost(f"{METADATA_TOPIC} could not be read within {seconds:g} seconds")
            for batch in fetcher.poll(_POLL_SECONDS):
                log = logs[batch.partition]
                for record in batch.records:
                    partition = partition_of(record.value) if chosen_partitions is None else None
                    if partition is not None:
                        log.know(partition)
                    log.take_record(record.value, record.offset)
                    if described is not None:
                        described.update(copies_begun(log, record.value))
                if batch.next_offset >= ends[batch.partition]:
                    fetcher.positions.pop(batch.partition, None)
    skipped = [log for log in logs.values() if log.skipped]
    if skipped:
        _say_once(f"{skipped[0].first_skipped} ({counted(sum(log.skipped for log in skipped), 'record')} left out in all)")
    return [each.cache for log in logs.values() for each in log.followed.values()]


@lru_cache(16)
def _say_once(text: str) -> None:
    """Commands read the metadata several times, and the console whenever it is looked at."""
    say(text)


def copies_begun(log: MetadataLog, value: bytes | None) -> Iterator[CopyName]:
    """The copy that this record, which the log has just taken in, describes; none if it is of another kind, or was left out."""
    from ottla.protocol.schema.wire import ProtocolError
    from ottla.storage.remote.metadata.records import SEGMENT, read_record

    try:
        record = read_record(value or b"")
    except ProtocolError:
        return
    followed = log.followed.get(record.place)
    if record.kind == SEGMENT and followed is not None:
        entry = followed.cache.get(record.key.to_bytes(16, "big"))
        if entry is not None:
            yield CopyName(entry.id, entry.start_offset)


def still_read(cluster: Cluster, entries: Iterable[SegmentEntry]) -> set[SegmentId]:
    """Which of these copies consumers still read. Brokers remove copies while a command examines them."""
    wanted = {entry.id for entry in entries}
    return {entry.id for entry, is_read in known_copies(cluster) if is_read and entry.id in wanted} if wanted else set()


def chosen(entry: SegmentEntry, topics: Collection[str]) -> bool:
    """Whether the copy is of a topic that a name or a pattern stands for, or none are given."""
    return is_named(entry.id.partition.topic, topics)


def is_named(topic: str, texts: Collection[str]) -> bool:
    """Whether a name or a pattern stands for the topic, or none are given. The topic need not exist any more."""
    return not texts or any(fnmatchcase(topic, each) for each in texts)


def as_row(entry: SegmentEntry, *, is_read: bool) -> list[object]:
    """The copy as a row of a table with COLUMNS."""
    from ottla.protocol.uuid import to_text

    epochs = ",".join(map(str, entry.leader_epochs))
    state = entry.state.name if is_read or entry.state.name != "COPY_SEGMENT_FINISHED" else "replaced"
    topic, index = entry.id.partition.topic, entry.id.partition.partition
    return [
        topic, index, state, entry.start_offset, entry.end_offset, entry.size, epochs, entry.max_timestamp_ms, entry.broker_id,
        to_text(entry.id.uuid),
    ]  # fmt: skip


def as_object(entry: SegmentEntry, *, is_read: bool) -> dict[str, object]:
    """The copy as an object."""
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
