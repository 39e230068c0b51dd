"""Finds the logs of partitions in a remote store alone, without the metadata of a cluster: which copies make them up, and in which order.

Aiven's layout has the entry of each copy in its manifest. A directory has names, and the leader epochs of each copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.broker.remote.stored_names import StoredName, stored_name
from ottla.storage.disk.leader_epochs import decode_leader_epochs
from ottla.storage.errors import CorruptCheckpoint
from ottla.storage.remote.entries import SegmentEntry, SegmentState, TopicIdPartition
from ottla.storage.remote.lineage import Epochs, epoch_of, epochs_between, is_in_lineage, with_records
from ottla.storage.remote.ports import IndexKind, RemoteStoreError

if TYPE_CHECKING:
    from ottla.broker.remote.remote_storage import RemoteStorage
    from ottla.protocol.records.batch import BatchHeader

_RECORDS: Final = "log"
_MOST_OFFSET: Final = (1 << 62) - 1
"""The end of a copy whose entry does not tell it: its records do."""


class StoredLog(NamedTuple):
    """A partition in the store: its copies by offset, of which each begins at most behind the one before, and why others are left out.

    `missing` has the copies behind all those, which are not complete: no other copy has their records.
    """

    partition: TopicIdPartition
    copies: list[SegmentEntry]
    left_out: list[str]
    missing: list[str]
    lineage: Epochs

    def has(self, header: BatchHeader) -> bool:
        """Whether the batch is of this history. A copy whose entry does not tell its end may go on with another one."""
        epoch = epoch_of(self.lineage, header.base_offset)
        return epoch is None or epoch == header.partition_leader_epoch


def known_end(entry: SegmentEntry) -> int | None:
    """Returns the offset behind those of the copy; None in a layout whose entries do not tell it."""
    return entry.end_offset + 1 if entry.end_offset < _MOST_OFFSET else None


async def stored_logs(storage: RemoteStorage, topic: str, topic_id: str | None, most_epoch: int | None) -> list[StoredLog]:
    """The partitions of a topic that the store has. Raises RemoteStoreError, and ValueError if several topics had that name.

    Copies with records of leader epochs above `most_epoch` do not count.
    """
    prefix = f"{topic}-"
    found = [each.name async for each in storage.store.list("") if each.name.startswith(prefix)]
    names = [each for each in map(stored_name, found) if each is not None and each.topic == topic and each.part == _RECORDS]
    ids = sorted({each.topic_id for each in names})
    if topic_id is not None:
        names = [each for each in names if each.topic_id == topic_id]
    elif len(ids) > 1:
        raise ValueError(f"the store has several topics named {topic}: choose one by --topic-id: {', '.join(ids)}")
    partitions: dict[TopicIdPartition, list[StoredName]] = {}
    for name in names:
        partitions.setdefault(name.topic_id_partition, []).append(name)
    return [await _log(storage, partition, copies, most_epoch) for partition, copies in sorted(partitions.items())]


async def _log(storage: RemoteStorage, partition: TopicIdPartition, names: Iterable[StoredName], most_epoch: int | None) -> StoredLog:
    entries: list[SegmentEntry] = []
    incomplete: list[tuple[int, str]] = []
    epochs_of: dict[bytes, list[tuple[int, int]]] = {}
    for name in names:
        try:
            entry = await _entry(storage, name)
            epochs = decode_leader_epochs(await storage.store.index(entry, IndexKind.LEADER_EPOCH), name.uuid)
            if not entry.leader_epochs:
                entry = replace(entry, leader_epochs=dict(epochs_between(epochs, entry.start_offset, _MOST_OFFSET)))
            if not entry.leader_epochs:
                raise RemoteStoreError("its leader epochs are not known")
        except (RemoteStoreError, CorruptCheckpoint) as error:
            incomplete.append((name.start_offset, f"the copy at offset {name.start_offset} is not complete: {error}"))
            continue
        if most_epoch is None or max(entry.leader_epochs) <= most_epoch:
            entries.append(entry)
            epochs_of[entry.id.uuid] = epochs
    entries.sort(key=lambda each: (each.start_offset, each.end_offset))
    last = entries[-1].start_offset if entries else -1
    missing = [text for start_offset, text in incomplete if start_offset > last]
    left_out = [text for start_offset, text in incomplete if start_offset <= last]
    if not entries:
        return StoredLog(partition, [], left_out, missing, [])
    newest = max(entries, key=lambda each: (max(each.leader_epochs), each.start_offset, each.end_offset))
    lineage = with_records(epochs_of[newest.id.uuid])
    chain: list[SegmentEntry] = []
    for entry in entries:
        ends = [each.start_offset for each in entries if each.start_offset > entry.start_offset]
        bounded = entry if entry.end_offset < _MOST_OFFSET else replace(entry, end_offset=min(ends, default=entry.start_offset + 1) - 1)
        if is_in_lineage(bounded, _MOST_OFFSET, lineage):
            chain.append(entry)
        else:
            left_out.append(f"the copy at offset {entry.start_offset} of epochs {sorted(entry.leader_epochs)} is of another history")
    return StoredLog(partition, chain, left_out, missing, lineage)


async def _entry(storage: RemoteStorage, name: StoredName) -> SegmentEntry:
    """The entry of a copy as the store tells it. Raises RemoteStoreError."""
    entry = replace(name.entry(), end_offset=_MOST_OFFSET, state=SegmentState.COPY_SEGMENT_FINISHED)
    manifest = await storage.store.manifest(entry)
    if manifest is None:
        return replace(entry, size=await storage.store.size(entry))
    try:
        fields: dict[str, Any] = json.loads(manifest)
        of = fields["remoteLogSegmentMetadata"]
        return replace(
            entry,
            end_offset=int(of["endOffset"]),
            broker_id=int(of["brokerId"]),
            max_timestamp_ms=int(of["maxTimestampMs"]),
            event_timestamp_ms=int(of["eventTimestampMs"]),
            leader_epochs={int(epoch): int(offset) for epoch, offset in of["segmentLeaderEpochs"].items()},
            size=int(fields["chunkIndex"]["originalFileSize"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RemoteStoreError(f"its manifest is malformed: {error!r}") from None
