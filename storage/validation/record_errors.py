"""Refusals of produced records that `storage.errors` has no class for, and which of all refusals say what in a Produce response.

Raised by `storage.validation.batch` and `storage.validation.records`. Apache Kafka makes some refusals before it looks for the log; those
errors carry no topic partition, and their answer no log start offset.
"""

from typing import Final

from storage.disk.topic_partition import TopicPartition
from storage.errors import CorruptRecord, InvalidRecord, RecordBatchTooLarge, RecordTooLarge, StorageError, UnsupportedCompressionType


class MalformedRecords(CorruptRecord):
    """No batch can be made out at all: an impossible size or magic. `reason` goes into the answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, reason)


class InvalidProduceRecords(InvalidRecord):
    """Not exactly one batch of magic 2, which is what Produce carries per partition from version 3 on (KIP-98, KIP-896)."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, reason)


class LegacyRecords(InvalidProduceRecords):
    """Records of magic 0 or 1."""


class WrongChecksum(CorruptRecord):
    """The CRC of a batch is not that of its bytes."""


class InvalidOffsetOrSequence(InvalidRecord):
    """A batch whose offsets and count cannot be, that is a control batch, or that has a producer and no sequence."""


NO_KEY: Final = "Compacted topic cannot accept message without key"
"""How the message of a single record begins that is refused for it."""


def records_without_key(error: Exception) -> int:
    """How many records of the batch were refused because a compacted topic needs keys."""
    return sum(message.startswith(NO_KEY) for _, message in error.record_errors) if isinstance(error, InvalidRecord) else 0


class UnreadableRecords(StorageError):
    """A codec that does not exist, or compressed bytes that the codec cannot read.

    Apache Kafka has no error code for it and answers UNKNOWN_SERVER_ERROR; so does Ottla, but without a stack trace in the log.
    """

    def __init__(self, topic_partition: TopicPartition, reason: str) -> None:
        super().__init__(f"unreadable record batch for {topic_partition}: {reason}")
        self.topic_partition = topic_partition
        self.reason = reason


# After these a Produce response has log_start_offset -1, after any other refusal of records the log's own.
WITHOUT_LOG_START_OFFSET: Final = (CorruptRecord, InvalidProduceRecords, RecordTooLarge, RecordBatchTooLarge, UnsupportedCompressionType)


def error_message(error: StorageError) -> str | None:
    """What a Produce response (from version 8, KIP-467) says beside the error code; it has text only for refused records or framing."""
    if isinstance(error, MalformedRecords) or (isinstance(error, InvalidRecord) and error.record_errors):
        return error.reason
    return None
