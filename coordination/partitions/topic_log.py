"""Appends a coordinator's records to its internal topic, by the same functions as records of producers, with acks=all.

`then` is called exactly once with (error, base offset): at once if there is nothing to wait for, otherwise when every in-sync replica has
the records or the time is up. It may be called before the append returns. An append without the wait (`waits`) is for records that matter
to clients only together with a later record. Each replica that has the later record also has the earlier ones.

`encode_pairs` encodes such records in the form of a batch's body: with the timestamp of the batch, without headers.
`ottla.protocol.records.builder.encode_records` does the same for any record, 1 µs each; a test holds both equal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

from ottla.coordination.appends.delayed_produce import ACKS_ALL, AppendedPartition, DelayedProduce
from ottla.coordination.error_map import error_code
from ottla.coordination.partitions.owned import OwnedPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import (
    HEADER_SIZE,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
)
from ottla.protocol.records.builder import VARINTS, encode_varint, frame_batch
from ottla.protocol.records.compression import CompressionCodec, compress
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.replication.errors import ReplicationError
from ottla.replication.leader.completion import append_at_once
from ottla.replication.leader.partition import Partition
from ottla.replication.waiting.purgatory import Purgatory
from ottla.storage.disk.clock import Clock
from ottla.storage.errors import LogDirFailure, StorageError
from ottla.storage.log.origins import COORDINATOR
from ottla.storage.validation.run import BatchRun

Pairs: TypeAlias = Sequence[tuple[bytes, bytes | None]]

ATTRIBUTES_AND_TIME: Final = b"\0\0"
"""Of every record: no attributes, the time of the batch."""

TOMBSTONE_OVERHEAD: Final = 16
"""Most bytes that a record without a value has besides its key. Its size, its offset and the size of the key have four each. Attributes,
time, the size of the value and the number of headers have one each."""

_KNOWN_VARINTS: Final = len(VARINTS)
_NULL: Final = encode_varint(-1)
_NO_HEADERS: Final = b"\0"


def encode_pairs(pairs: Pairs) -> bytes:
    """Records with these keys and values. 0.4 µs each."""
    parts: list[bytes] = []
    for delta, (key, value) in enumerate(pairs):
        add_pair(delta, key, value, parts)
    return b"".join(parts)


def add_pair(delta: int, key: bytes, value: bytes | None, parts: list[bytes]) -> None:
    """Add the parts of one record, whose offset is `delta` behind the first."""
    known = VARINTS
    size = len(key)
    key_size = known[size] if size < _KNOWN_VARINTS else encode_varint(size)
    if value is None:
        value_size, data = _NULL, b""
    else:
        size = len(value)
        value_size, data = known[size] if size < _KNOWN_VARINTS else encode_varint(size), value
    delta_bytes = known[delta] if delta < _KNOWN_VARINTS else encode_varint(delta)
    size = len(delta_bytes) + len(key_size) + len(key) + len(value_size) + len(data) + len(ATTRIBUTES_AND_TIME) + len(_NO_HEADERS)
    record_size = known[size] if size < _KNOWN_VARINTS else encode_varint(size)
    parts += (record_size, ATTRIBUTES_AND_TIME, delta_bytes, key_size, key, value_size, data, _NO_HEADERS)


logger = logging.getLogger(__name__)

NOT_APPENDED = -1
"""Replaces a base offset when nothing was written."""

UNAVAILABLE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""The error code for clients of the coordinator, by the error of an append."""

STORE_ERRORS = {
    **UNAVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The error code for clients whose request has to be stored, by the error of the append."""

GROUP_STORE_ERRORS = {
    **STORE_ERRORS,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The error code for the members of a group, by the error of the append of the group's records."""

Then: TypeAlias = Callable[[ErrorCode, int], None]


@final
class TopicLog:
    """See the module."""

    __slots__ = ("_clock", "_codec", "_purgatory", "_refused", "_replica_manager", "_required_acks", "_timeout_ms", "_topic")

    def __init__(
        self,
        topic: str,
        replica_manager: ReplicaManager,
        purgatory: Purgatory,
        clock: Clock,
        *,
        timeout_ms: int,
        required_acks: int = ACKS_ALL,
        codec: int = CompressionCodec.NONE,
    ) -> None:
        self._topic = topic
        self._replica_manager = replica_manager
        self._purgatory = purgatory
        self._clock = clock
        self._codec = codec
        self._required_acks = required_acks
        self._timeout_ms = timeout_ms
        self._refused: dict[int, ErrorCode] = {}
        """By partition, the reason why the last append was refused. It is logged once, because every commit may fail until a broker is
        back."""

    def append(
        self,
        index: int,
        records: bytes,
        count: int,
        then: Then,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        guard: object = None,
        timeout_ms: int | None = None,
        waits: bool = True,
    ) -> int:
        """Write `count` records (`encode_pairs`) as one batch to a partition, and call `then` when they are replicated. Returns the base
        offset of the batch, or NOT_APPENDED if nothing was written. With a producer id the batch is part of that producer's transaction,
        and `guard` comes from `begin_verification`. Replicas have `timeout_ms` for the batch, by default the timeout of the coordinator's
        log. Unless `waits`, `then` is called as soon as the batch is in the log of this broker.
        """
        try:
            partition, base_offset, next_offset = self._append(
                index, records, count, self._required_acks, producer_id, producer_epoch, base_sequence, guard
            )
        except (StorageError, ReplicationError) as error:
            then(self._failed(index, error), NOT_APPENDED)
            return NOT_APPENDED
        except Exception:  # a fault of this broker: the group or transactional id would wait for the record forever
            logger.exception("%s-%d: cannot be appended to", self._topic, index)
            then(ErrorCode.UNKNOWN_SERVER_ERROR, NOT_APPENDED)
            return NOT_APPENDED
        if not waits:
            then(ErrorCode.NONE, base_offset)
            return base_offset
        required_acks = self._required_acks
        try:
            is_safe = partition.is_acknowledged(next_offset, required_acks)
        except ReplicationError:  # a waiter that this append has notified met a failed disk; `begin` finds it, too
            is_safe = False
        if is_safe:
            then(ErrorCode.NONE, base_offset)
            return base_offset
        waiting = DelayedProduce(
            [AppendedPartition(partition, base_offset, next_offset, 0)],
            required_acks,
            lambda decided: then(ErrorCode.of(decided[0].error_code), base_offset),
        )
        waiting.begin(self._purgatory, self._timeout_ms if timeout_ms is None else timeout_ms)
        return base_offset

    def begin_verification(self, index: int, producer_id: int, producer_epoch: int, raises_epochs: bool) -> tuple[ErrorCode, object]:
        """Begin the verification that a partition is part of the producer's transaction, or, with `raises_epochs`, its addition to the
        transaction. Returns (error, guard of the append). The guard is None if no verification is necessary.
        """
        try:
            partition = self._replica_manager.partition_or_raise(self._topic, index)
            return ErrorCode.NONE, partition.begin_verification(producer_id, NO_SEQUENCE, producer_epoch, raises_epochs)
        except (StorageError, ReplicationError) as error:
            return self._failed(index, error), None

    def append_tombstones(self, index: int, keys: Sequence[bytes]) -> bool:
        """Write tombstones for keys, without waiting for replicas: lost ones are written again later. False if the append failed."""
        try:
            records = encode_pairs([(key, None) for key in keys])
            self._append(index, records, len(keys), 0, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, None)
        except (StorageError, ReplicationError) as error:
            self._failed(index, error)
            return False
        return True

    def delete_below(self, index: int, offset: int) -> None:
        """Delete the records below an offset, as far as all in-sync replicas have them. Raises StorageError, ReplicationError."""
        partition = self._replica_manager.partition_or_raise(self._topic, index)
        offset = min(offset, partition.log.high_watermark)
        if offset > partition.log.log_start_offset:
            partition.delete_records(offset)

    def end_offset(self, index: int) -> int:
        """The end of the log of a partition. Raises StorageError, ReplicationError."""
        return self._replica_manager.partition_or_raise(self._topic, index).log.log_end_offset

    def room_for_records(self, index: int, most: int) -> int:
        """The number of bytes of records, at most `most`, that one batch in a partition may have. `max.message.bytes` and `segment.bytes`
        of the topic limit the batch."""
        partition = self._replica_manager.partition(self._topic, index)
        if partition is None:
            return most
        log = partition.log
        return min(most, min(log.rules.max_message_bytes, log.segments.settings.segment_bytes) - HEADER_SIZE)

    def has_what_was_loaded(self, owned: OwnedPartition) -> bool:
        """Whether all in-sync replicas have the loaded records of a partition."""
        if owned.loaded_end_offset:
            partition = self._replica_manager.partition(self._topic, owned.index)
            if partition is None or partition.log.high_watermark < owned.loaded_end_offset:
                return False
            owned.loaded_end_offset = 0
        return True

    def _append(
        self,
        index: int,
        records: bytes,
        count: int,
        required_acks: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        guard: object,
    ) -> tuple[Partition, int, int]:
        partition = self._replica_manager.partition_or_raise(self._topic, index)
        now_ms: int = self._clock.now_ms()
        codec = self._codec
        batch = frame_batch(
            compress(codec, records) if codec else records,
            attributes=codec if producer_id == NO_PRODUCER_ID else codec | TRANSACTIONAL_MASK,
            base_offset=0,
            last_offset=count - 1,
            partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
            base_timestamp=now_ms,
            max_timestamp=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=count,
        )
        run = BatchRun(memoryview(batch))
        run.read(0)
        run.guard = guard
        partition.append(run, required_acks, now_ms, COORDINATOR)
        if run.needs_worker:
            # The topic's compression.type was changed, or it has an old message format. The batches are small.
            run = append_at_once(run, partition, required_acks, COORDINATOR, self._clock)
        if self._refused and self._refused.pop(index, None) is not None:
            logger.info("%s-%d: can be appended to again", self._topic, index)
        return partition, run.first_offset, run.last_offset + 1

    def _failed(self, index: int, error: StorageError | ReplicationError) -> ErrorCode:
        if isinstance(error, LogDirFailure):
            self._replica_manager.log_manager.report_failure(error)
        code = error_code(error)
        if self._refused.get(index) != code:
            self._refused[index] = code
            logger.warning("%s-%d: cannot be appended to (%s): %s", self._topic, index, code.name, error)
        return code
