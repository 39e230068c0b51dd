"""Holds the stored state of one share partition, and changes it by its records. Kafka's ShareGroupOffset.

A snapshot record has the whole state; the update records behind it have changes. A coordinator applies its own records in the same way as
those that it loads, so a loaded state equals the one that was in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from ottla.coordination.shares.record_states import StateBatch
from ottla.coordination.shares.state.merging import merge, prune
from ottla.protocol.messages.share_state_records import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue
from ottla.protocol.messages.share_state_records import StateBatch as BatchRecord
from ottla.protocol.schema.wire import ProtocolError
from ottla.protocol.uuid import from_text, to_text

SNAPSHOT: Final = 0
UPDATE: Final = 1
VALUE_VERSION: Final = 0
NO_OFFSET: Final = -1
"""The start of a share partition that no leader has initialized: the group's configuration decides."""
NO_COUNT: Final = -1

_VERSION = Struct(">h")


class SharePartitionKey(NamedTuple):
    """A partition as a share group reads it."""

    group_id: str
    topic_id: bytes
    partition: int

    @classmethod
    def parse(cls, text: str) -> SharePartitionKey:
        """The key whose text this is. Raises ValueError."""
        group_id, topic_id, partition = text.rsplit(":", 2)
        if not group_id.strip():
            raise ValueError(f"{text!r} has no group id")
        index = int(partition)
        if not -(2**31) <= index < 2**31:
            raise ValueError(f"{text!r} has the partition {index}")
        return cls(group_id, from_text(topic_id), index)

    def __str__(self) -> str:
        """The text whose hash decides about the coordinator."""
        return f"{self.group_id}:{to_text(self.topic_id)}:{self.partition}"


class StoredState:
    """See the module. The fences are the highest epochs ever seen; an initialization resets only those of the state itself."""

    __slots__ = (
        "batches",
        "complete_count",
        "created_ms",
        "initial_start",
        "is_replicated",
        "kept_from",
        "key",
        "leader_epoch",
        "leader_fence",
        "snapshot_epoch",
        "snapshot_offset",
        "start_offset",
        "state_epoch",
        "state_fence",
        "updates",
        "written_ms",
    )

    def __init__(self, key: SharePartitionKey) -> None:
        self.key = key
        self.snapshot_epoch = -1
        self.state_epoch = 0
        self.leader_epoch = 0
        self.state_fence = 0
        self.leader_fence = 0
        self.start_offset = NO_OFFSET
        self.initial_start: int | None = NO_OFFSET
        """The start with which the state was begun in its epoch; None if the log does not tell any more."""
        self.complete_count = NO_COUNT
        self.batches: list[StateBatch] = []
        self.created_ms = 0
        self.written_ms = 0
        self.updates = 0
        """Updates since the last snapshot."""
        self.snapshot_offset = 0
        """The offset of the last snapshot in the log."""
        self.kept_from = 0
        """The offset of a snapshot that all in-sync replicas have. Earlier records of this share partition are no longer needed."""
        self.is_replicated = True
        """Whether all in-sync replicas have the records that this broker appended."""

    # -- records -------------------------------------------------------------------------------------------------------------

    def initialized(self, state_epoch: int, start_offset: int, now_ms: int) -> ShareSnapshotValue:
        """The record that begins the state anew."""
        return ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            delivery_complete_count=NO_COUNT if start_offset == NO_OFFSET else 0,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
        )

    def written(self, start_offset: int, complete_count: int, new: Iterable[StateBatch]) -> ShareUpdateValue:
        """The record of a change by a leader. The start never goes back, nor does the count that belongs to it."""
        if start_offset < self.start_offset:
            complete_count = self.complete_count
        elif start_offset == self.start_offset:
            complete_count = max(complete_count, self.complete_count)
        start_offset = max(start_offset, self.start_offset)
        batches: list[StateBatch] = []
        merge(batches, new)
        prune(batches, start_offset)
        return self._update(self.leader_epoch, start_offset, complete_count, batches)

    def led(self, leader_epoch: int) -> ShareUpdateValue:
        """The record of a new leader's epoch."""
        return self._update(leader_epoch, self.start_offset, self.complete_count, ())

    def _update(self, leader_epoch: int, start_offset: int, complete_count: int, batches: Iterable[StateBatch]) -> ShareUpdateValue:
        return ShareUpdateValue(
            snapshot_epoch=self.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete_count,
            state_batches=_batch_records(batches),
        )

    def snapshot_after(self, update: ShareUpdateValue, now_ms: int) -> ShareSnapshotValue:
        """The record of the whole state after a change, instead of that of the change.

        It has the time of the beginning as well as its own, which is later. An initialization has one time.
        """
        batches = list(self.batches)
        merge(batches, _batches_of(update))
        prune(batches, update.start_offset)
        return ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch + 1,
            state_epoch=self.state_epoch,
            leader_epoch=update.leader_epoch,
            start_offset=update.start_offset,
            delivery_complete_count=update.delivery_complete_count,
            create_timestamp=self.created_ms,
            write_timestamp=max(now_ms, self.created_ms + 1),
            state_batches=_batch_records(batches),
        )

    # -- changes -------------------------------------------------------------------------------------------------------------

    def apply_snapshot(self, value: ShareSnapshotValue, offset: int) -> None:
        """The state is that of the record at an offset of the log."""
        if self.snapshot_epoch < 0:
            self.kept_from = offset  # nothing is before it
        if value.create_timestamp == value.write_timestamp:
            self.initial_start = value.start_offset
        elif self.snapshot_epoch < 0 or value.state_epoch != self.state_epoch:
            self.initial_start = None
        self.snapshot_epoch = value.snapshot_epoch
        self.state_epoch = value.state_epoch
        self.leader_epoch = value.leader_epoch
        self.state_fence = max(self.state_fence, value.state_epoch)
        self.leader_fence = max(self.leader_fence, value.leader_epoch)
        self.start_offset = value.start_offset
        self.complete_count = value.delivery_complete_count
        self.batches = _batches_of(value)
        self.created_ms = value.create_timestamp
        self.written_ms = value.write_timestamp
        self.updates = 0
        self.snapshot_offset = offset

    def apply_update(self, value: ShareUpdateValue, now_ms: int) -> None:
        """Change the state by a record of this time."""
        if value.leader_epoch != -1:
            self.leader_epoch = value.leader_epoch
        self.leader_fence = max(self.leader_fence, value.leader_epoch)
        if value.start_offset != NO_OFFSET:
            self.start_offset = value.start_offset
        self.complete_count = value.delivery_complete_count
        merge(self.batches, _batches_of(value))
        prune(self.batches, self.start_offset)
        self.written_ms = now_ms
        self.updates += 1


def snapshot_key(key: SharePartitionKey) -> bytes:
    """The key of a snapshot, or of the tombstone of a share partition."""
    record = ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return _VERSION.pack(SNAPSHOT) + record.encode(SNAPSHOT)


def update_key(key: SharePartitionKey) -> bytes:
    """The key of an update."""
    record = ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return _VERSION.pack(UPDATE) + record.encode(UPDATE)


def encode_value(value: ShareSnapshotValue | ShareUpdateValue) -> bytes:
    """The value of a record."""
    return _VERSION.pack(VALUE_VERSION) + value.encode(VALUE_VERSION)


def read_key(data: bytes) -> tuple[int, SharePartitionKey] | None:
    """The kind of a record, and its share partition; None for a key of another version. Raises ProtocolError."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"a key of {len(data)} bytes")
    (kind,) = _VERSION.unpack_from(data)
    key: ShareSnapshotKey | ShareUpdateKey
    if kind == SNAPSHOT:
        key, _ = ShareSnapshotKey.decode(data, kind, _VERSION.size)
    elif kind == UPDATE:
        key, _ = ShareUpdateKey.decode(data, kind, _VERSION.size)
    else:
        return None
    return kind, SharePartitionKey(key.group_id, key.topic_id, key.partition)


def read_snapshot(data: bytes) -> ShareSnapshotValue:
    """The value of a snapshot. Raises ProtocolError."""
    value, _ = ShareSnapshotValue.decode(data, _version_of(data), _VERSION.size)
    _check(value.state_batches)
    return value


def read_update(data: bytes) -> ShareUpdateValue:
    """The value of an update. Raises ProtocolError."""
    value, _ = ShareUpdateValue.decode(data, _version_of(data), _VERSION.size)
    _check(value.state_batches)
    return value


def _version_of(data: bytes) -> int:
    version = int(_VERSION.unpack_from(data)[0]) if len(data) >= _VERSION.size else -1
    if version != VALUE_VERSION:
        raise ProtocolError(f"a value of version {version}")
    return version


def _check(batches: Iterable[BatchRecord]) -> None:
    for batch in batches:
        if not 0 <= batch.first_offset <= batch.last_offset:
            raise ProtocolError(f"a batch from {batch.first_offset} to {batch.last_offset}")


def _batches_of(value: ShareSnapshotValue | ShareUpdateValue) -> list[StateBatch]:
    batches: list[StateBatch] = []
    merge(batches, map(_batch, value.state_batches))
    return batches


def _batch(record: BatchRecord) -> StateBatch:
    """The batch in a record. That of a single offset has one number, not two: a quarter of its memory."""
    first = record.first_offset
    return StateBatch(first, first if first == record.last_offset else record.last_offset, record.delivery_state, record.delivery_count)


def _batch_records(batches: Iterable[StateBatch]) -> list[BatchRecord]:
    return [
        BatchRecord(first_offset=each.first, last_offset=each.last, delivery_state=each.state, delivery_count=each.delivery_count)
        for each in batches
    ]
