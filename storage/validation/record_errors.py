"""Declares errors of produced records beside those in `ottla.storage.errors`, and their form in a Produce response.

Raised by `ottla.storage.validation.batch` and `ottla.storage.validation.records`. Apache Kafka refuses some records before it looks up the
log. Those errors have no topic partition, and their response has no log start offset.
"""

from typing import Final

from ottla.protocol.records.compression import CompressionCodec
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.errors import CorruptRecord, InvalidRecord, RecordBatchTooLarge, RecordTooLarge, StorageError, UnsupportedCompressionType


class MalformedRecords(CorruptRecord):
    """The records do not begin with a batch: impossible size or magic. `reason` goes into the response."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, reason)


class InvalidProduceRecords(InvalidRecord):
    """There is not exactly one batch of magic 2, as Produce requires per partition from version 3 on (KIP-98, KIP-896)."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, reason)


class LegacyRecords(InvalidProduceRecords):
    """The records have magic 0 or 1."""


class TooOldForZstd(UnsupportedCompressionType):
    """A Produce below version 7 has zstd (KIP-110)."""

    def __init__(self) -> None:
        super().__init__(None, CompressionCodec.ZSTD.label)


class WrongChecksum(CorruptRecord):
    """The CRC of a batch does not match its bytes."""


class InvalidOffsetOrSequence(InvalidRecord):
    """The offsets and count of a batch are impossible, or it is a control batch, or it has a producer but no sequence."""


NO_KEY: Final = "Compacted topic cannot accept message without key"
"""Start of the message about a single record without a key."""


def records_without_key(error: Exception) -> int:
    """The number of records that were refused because a compacted topic needs keys."""
    return sum(message.startswith(NO_KEY) for _, message in error.record_errors) if isinstance(error, InvalidRecord) else 0


class UnreadableRecords(StorageError):
    """The codec does not exist, or cannot read the compressed bytes.

    Apache Kafka has no error code for this and answers UNKNOWN_SERVER_ERROR. Ottla answers the same, but logs no stack trace.
    """

    def __init__(self, topic_partition: TopicPartition, reason: str) -> None:
        super().__init__(f"unreadable record batch for {topic_partition}: {reason}")
        self.topic_partition = topic_partition
        self.reason = reason


# With these errors a Produce response has log_start_offset -1, with other refusals of records the log's own.
WITHOUT_LOG_START_OFFSET: Final = (CorruptRecord, InvalidProduceRecords, RecordTooLarge, RecordBatchTooLarge, TooOldForZstd)


def error_message(error: StorageError) -> str | None:
    """The error message of a Produce response (from version 8 on, KIP-467). None unless records or their framing were refused."""
    if isinstance(error, MalformedRecords) or (isinstance(error, InvalidRecord) and error.record_errors):
        return error.reason
    return None
