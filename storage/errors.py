"""Declares the errors of the storage floor, as exceptions with the facts in fields.

Only the storage floor raises them. `coordination/error_map.py` maps them to wire error codes, and needs a row for each new class.
"""

import errno
from collections.abc import Sequence
from typing import Final

from ottla.protocol.topic_partition import TopicPartition

SHORTAGES: Final = (errno.EMFILE, errno.ENFILE)
"""Errors of a call while no descriptor is free. They pass, and say nothing about a disk."""


class StorageError(Exception):
    """Base of all errors that the storage floor raises deliberately."""


class LogDirFailure(StorageError):
    """The disk refused an operation. `path` and `reason` are for the operator.

    The log directory `log_dir` must be taken offline, except after a shortage of descriptors (`passes`): the operation alone has failed.
    """

    def __init__(self, log_dir: str, path: str, reason: str, *, passes: bool = False) -> None:
        super().__init__(f"{path}: {reason} (log directory {log_dir})")
        self.what = f"{path}: {reason}"
        self.log_dir = log_dir
        self.path = path
        self.reason = reason
        self.passes = passes

    @classmethod
    def of(cls, error: OSError, log_dir: str, path: str) -> "LogDirFailure":
        """The failure for an error of the system, which names its file, or else happened at `path`."""
        return cls(log_dir, str(error.filename or path), error.strerror or str(error), passes=error.errno in SHORTAGES)


class LogDirNotFound(StorageError):
    """`log_dir` is not in `log.dirs`."""

    def __init__(self, log_dir: str) -> None:
        super().__init__(f"Log dir '{log_dir}' is not found in the config.")
        self.log_dir = log_dir


class LogClosed(StorageError):
    """The log was closed or deleted while a caller still held it."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        super().__init__(f"the log of {topic_partition} is closed")
        self.topic_partition = topic_partition


class LogBeingTruncated(StorageError):
    """A thread is truncating the log. The caller tries again later."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        super().__init__(f"the log of {topic_partition} is being truncated")
        self.topic_partition = topic_partition


class TopicIdNotDurable(StorageError):
    """A power cut might still take the topic id of the log, so nothing is appended. The caller tries again later."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        super().__init__(f"the topic id of {topic_partition} is not durable yet")
        self.topic_partition = topic_partition


class OffsetOutOfRange(StorageError):
    """`offset` is outside `[start, end]` of the log."""

    def __init__(self, topic_partition: TopicPartition, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} of {topic_partition} is not in [{start}, {end}]")
        self.topic_partition = topic_partition
        self.offset = offset
        self.start = start
        self.end = end


class OffsetMovedToTieredStorage(StorageError):
    """The log has the offset, but its segment is in the remote store only: the log on this broker begins at `local_start`."""

    def __init__(self, topic_partition: TopicPartition, offset: int, local_start: int) -> None:
        super().__init__(f"offset {offset} of {topic_partition} is below {local_start}, and in the remote store only")
        self.topic_partition = topic_partition
        self.offset = offset
        self.local_start = local_start


class UnexpectedAppendOffset(StorageError):
    """A follower received batches that begin below its log end offset."""

    def __init__(self, topic_partition: TopicPartition, first_offset: int, last_offset: int, log_end_offset: int) -> None:
        super().__init__(f"append of [{first_offset}, {last_offset}] to {topic_partition}, whose log end offset is {log_end_offset}")
        self.topic_partition = topic_partition
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_end_offset = log_end_offset


class OffsetsOutOfOrder(StorageError):
    """The batches of one append do not have increasing offsets."""

    def __init__(self, topic_partition: TopicPartition, last_offset: int, next_offset: int) -> None:
        super().__init__(f"offset {next_offset} after {last_offset} in one append to {topic_partition}")
        self.topic_partition = topic_partition
        self.last_offset = last_offset
        self.next_offset = next_offset


class SegmentOffsetOverflow(StorageError):
    """An offset is too far from the segment's base offset for the 32 bits of an index entry."""

    def __init__(self, path: str, base_offset: int, offset: int) -> None:
        super().__init__(f"{path}: offset {offset} does not fit a segment that begins at {base_offset}")
        self.path = path
        self.base_offset = base_offset
        self.offset = offset


# ---- refused batches of producers (validation)


class CorruptRecord(StorageError):
    """Sizes, magic or CRC of a batch are wrong: the bytes were damaged in transit."""

    def __init__(self, topic_partition: TopicPartition | None, reason: str) -> None:
        super().__init__(f"corrupt record batch for {topic_partition}: {reason}" if topic_partition else f"corrupt record batch: {reason}")
        self.topic_partition = topic_partition
        self.reason = reason


class InvalidRecord(StorageError):
    """The batch is undamaged but violates a rule. `record_errors` are (index in batch, message) of single records."""

    def __init__(self, topic_partition: TopicPartition | None, reason: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(f"invalid record for {topic_partition}: {reason}" if topic_partition else f"invalid record: {reason}")
        self.topic_partition = topic_partition
        self.reason = reason
        self.record_errors = tuple(record_errors)


class InvalidTimestamp(InvalidRecord):
    """A timestamp is further from the broker's clock than the topic allows, or a producer sent type LogAppendTime."""


class RecordTooLarge(StorageError):
    """A batch is larger than `max.message.bytes`."""

    def __init__(self, topic_partition: TopicPartition | None, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"record batch of {size_bytes} bytes for {topic_partition}; max.message.bytes is {limit_bytes}")
        self.topic_partition = topic_partition
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class ExpandedTooLarge(RecordTooLarge):
    """The records of a batch expand to more than the caller allows. With a larger limit they may be accepted."""


class RecordBatchTooLarge(StorageError):
    """An append is larger than a whole segment (`segment.bytes`)."""

    def __init__(self, topic_partition: TopicPartition, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"append of {size_bytes} bytes to {topic_partition}; segment.bytes is {limit_bytes}")
        self.topic_partition = topic_partition
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class UnsupportedForMessageFormat(StorageError):
    """The log keeps a message format without the requested feature: producers, transactions, or timestamps."""

    def __init__(self, topic_partition: TopicPartition, what: str, magic: int) -> None:
        super().__init__(f"{what} not possible in message format {magic} of {topic_partition}")
        self.topic_partition = topic_partition
        self.what = what
        self.magic = magic


class UnsupportedCompressionType(StorageError):
    """The codec is not allowed: zstd below Produce 7, or while brokers before 2.1 may be in the cluster."""

    def __init__(self, topic_partition: TopicPartition | None, codec: str) -> None:
        super().__init__(f"compression {codec} is not supported for {topic_partition}")
        self.topic_partition = topic_partition
        self.codec = codec


# ---- producer state


class ProducerStateError(StorageError):
    """An idempotent or transactional producer violated the protocol."""

    def __init__(self, topic_partition: TopicPartition, producer_id: int, reason: str) -> None:
        super().__init__(f"producer {producer_id} on {topic_partition}: {reason}")
        self.topic_partition = topic_partition
        self.producer_id = producer_id
        self.reason = reason


class OutOfOrderSequence(ProducerStateError):
    """A batch's first sequence does not follow the producer's last one."""


class InvalidProducerEpoch(ProducerStateError):
    """The epoch of a batch is older than the producer's current one."""


class InvalidTxnState(ProducerStateError):
    """A transactional batch or marker has no matching open transaction."""


class TransactionCoordinatorFenced(ProducerStateError):
    """A marker comes from an older transaction coordinator."""


# ---- damaged files


class CorruptIndex(StorageError):
    """An index file contradicts itself or its segment. It must be rebuilt."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class CorruptSnapshot(StorageError):
    """The version, size or CRC of a producer snapshot is wrong."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class CorruptCheckpoint(StorageError):
    """A checkpoint file violates its format."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class InconsistentTopicId(StorageError):
    """The partition's directory belongs to another topic of the same name."""

    def __init__(self, topic_partition: TopicPartition, expected: bytes, found: bytes) -> None:
        super().__init__(f"{topic_partition} has topic id {found.hex()}, not {expected.hex()}")
        self.topic_partition = topic_partition
        self.expected = expected
        self.found = found
