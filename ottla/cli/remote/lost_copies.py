"""Implements `ottla remote scrub --copy-again`: has leaders copy the segments again whose records have vanished from the remote store.

A leader copies all closed segments of which no finished copy has some offsets. So it is enough that the metadata say that the vanished
copy is being removed, and by TO_COPY_AGAIN that its records are not. Then local retention waits for the new copy, and no later leader
moves the log start behind these records. The leader removes what is left of the old copy once the new one is finished.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from ottla.broker.remote.stored_names import stored_name
from ottla.cli.remote.gaps import partitions_of
from ottla.client.config_admin import ConfigResourceType, describe_configs
from ottla.client.offsets import EARLIEST_LOCAL, reachable_offsets
from ottla.config.topic import REMOTE_STORAGE_ENABLE
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.remote.entries import TO_COPY_AGAIN, SegmentEntry, SegmentId, SegmentState, SegmentUpdate, TopicIdPartition
from ottla.storage.remote.ports import IndexKind, RemoteObjectMissing

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.client.producer import Delivery
    from ottla.storage.remote.ports import RemoteStore, StoredObject

ADVICE: Final = "; its leader still has the segment, and copies it again by: ottla remote scrub --copy-again"
_NOT_THERE: Final = "its leader does not have all of the segment any more"
_REMOVED: Final = "its leader has just removed the segment, too; only a version of the object that the bucket keeps has its records"
_OF_OTHER_LOG: Final = "the copies of its partition are those of a lost log"
_NOT_TIERED: Final = "its topic does not have remote.storage.enable=true"
_NO_OTTLA: Final = "its leader is no broker of Ottla, and those of Apache Kafka copy no segment twice"


async def has_vanished(store: RemoteStore, entry: SegmentEntry) -> bool:
    """Tells if the store has no records of the copy, or no manifest of them, or nothing of one without records.

    Raises RemoteStoreError if it does not say so.
    """
    try:
        if entry.size:
            await store.fetch(entry, 0, 1)
        else:
            await store.index(entry, IndexKind.LEADER_EPOCH)
    except RemoteObjectMissing:
        return True
    return False


async def vanished(store: RemoteStore, objects: Iterable[StoredObject], entries: Iterable[SegmentEntry]) -> list[SegmentEntry]:
    """Returns the copies without an object of records, or without the manifest that tells how to read it. Raises RemoteStoreError.

    A copy that was made since the objects were listed is not among them, nor is one below another prefix.
    """
    from ottla.protocol.uuid import to_text
    from ottla.storage.remote.object_layout import INDEXES, LOG, MANIFEST

    names = (stored_name(each.name) for each in objects)
    listed = {(name.uuid, name.start_offset, name.part) for name in names if name is not None}
    needed = (LOG, MANIFEST) if any(part in (INDEXES, MANIFEST) for *_, part in listed) else (LOG,)
    missing = [entry for entry in entries if any((to_text(entry.id.uuid), entry.start_offset, part) not in listed for part in needed)]
    return [entry for entry in missing if await has_vanished(store, entry)]


def still_local(cluster: Cluster, entries: Sequence[SegmentEntry]) -> set[SegmentId]:
    """Which of these copies have all their offsets on the leaders of their partitions, too. Raises ClientError."""
    if not entries:
        return set()
    partitions = set(partitions_of(cluster, sorted({entry.id.partition.topic for entry in entries})))
    here = [entry for entry in entries if entry.id.partition in partitions]
    starts, _ = reachable_offsets(cluster, dict.fromkeys({TopicPartition(*entry.id.partition[1:]) for entry in here}, EARLIEST_LOCAL))
    return {entry.id for entry in here if entry.start_offset >= starts.get(TopicPartition(*entry.id.partition[1:]), entry.end_offset + 1)}


def give_up(cluster: Cluster, entries: Sequence[SegmentEntry], known: Iterable[SegmentEntry]) -> dict[str, str | None]:
    """Says in the metadata that these copies are being removed. Returns for each why not, None if that is done. Raises ClientError.

    `known` has all copies. Nothing is said of a copy whose records exist nowhere, or that its leader would not make again.
    """
    from ottla.storage.remote.object_layout import is_marked

    local = still_local(cluster, entries)
    marked = {entry.id.partition for entry in known if entry.state == SegmentState.COPY_SEGMENT_FINISHED and is_marked(entry.custom)}
    refusal = cache(partial(_refusal, cluster))  # a store that was emptied has lost all copies of a partition
    outcomes: dict[str, str | None] = {}
    given_up = []
    for entry in entries:
        reason = _NOT_THERE if entry.id not in local else _OF_OTHER_LOG if entry.id.partition in marked else refusal(entry.id.partition)
        outcomes[name_of(entry)] = reason
        if reason is None:
            given_up.append(entry)
    if given_up:
        _publish(cluster, given_up)
        local = still_local(cluster, given_up)  # until a leader has read what was published, its retention goes on
        outcomes.update({name_of(entry): _REMOVED for entry in given_up if entry.id not in local})
    return outcomes


def name_of(entry: SegmentEntry) -> str:
    """The partition and the offsets of a copy, for a person."""
    return f"{entry.id.partition.topic}-{entry.id.partition.partition}: {entry.start_offset} to {entry.end_offset}"


def _refusal(cluster: Cluster, partition: TopicIdPartition) -> str | None:
    configs = {each.name: each.value for each in describe_configs(cluster, ConfigResourceType.TOPIC, partition.topic)}
    if configs.get(REMOTE_STORAGE_ENABLE.name) != "true":
        return _NOT_TIERED
    leader = cluster.leader(TopicPartition(partition.topic, partition.partition))
    loggers = describe_configs(cluster, ConfigResourceType.BROKER_LOGGER, str(leader))
    return None if any(each.name.startswith("ottla.") for each in loggers) else _NO_OTTLA


def _publish(cluster: Cluster, entries: Iterable[SegmentEntry]) -> None:
    from ottla.client.producer import OutgoingRecord, Producer
    from ottla.storage.remote.metadata.log import METADATA_TOPIC
    from ottla.storage.remote.metadata.partitions import metadata_partition
    from ottla.storage.remote.metadata.records import encode_update

    count = len(cluster.partitions(METADATA_TOPIC))
    with Producer(cluster, METADATA_TOPIC, on_delivery=_raise) as producer:
        for entry in entries:
            update = SegmentUpdate(entry.id, TO_COPY_AGAIN, int(time.time() * 1000), SegmentState.DELETE_SEGMENT_STARTED)
            producer.send(OutgoingRecord(encode_update(update), partition=metadata_partition(entry.id.partition, count)))


def _raise(delivery: Delivery) -> None:
    if delivery.error is not None:
        raise delivery.error
