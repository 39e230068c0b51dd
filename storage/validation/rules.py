"""Holds the part of a log's configuration that validation needs, as plain attributes.

Owned by the log, which makes new rules when its configuration changes.
"""

from typing import Final, final

from ottla.protocol.records.batch import CURRENT_MAGIC, TimestampType
from ottla.protocol.topic_partition import TopicPartition

NO_TIMESTAMP_LIMIT: Final = 2**63 - 1  # the default of message.timestamp.before.max.ms and of message.timestamp.after.max.ms


@final
class ValidationRules:
    """The rules of one log. Immutable."""

    __slots__ = (
        "compact",
        "compression_codec",
        "compression_level",
        "limits_timestamps",
        "magic",
        "max_message_bytes",
        "refuses_zstd",
        "takes_log_append_time",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
        "timestamp_type",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        max_message_bytes: int = 1048588,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        timestamp_before_max_ms: int = NO_TIMESTAMP_LIMIT,
        timestamp_after_max_ms: int = NO_TIMESTAMP_LIMIT,
        compression_codec: int | None = None,
        compression_level: int | None = None,
        compact: bool = False,
        magic: int = CURRENT_MAGIC,
        refuses_zstd: bool = False,
    ) -> None:
        """`compression_codec` None stands for compression.type=producer: batches stay as they are. Level None is the codec's default.

        `magic` is the message format in which records are stored. `refuses_zstd`: whether clients may not have zstd stored.
        """
        self.topic_partition = topic_partition
        self.max_message_bytes = max_message_bytes
        self.timestamp_type = timestamp_type
        self.timestamp_before_max_ms = timestamp_before_max_ms
        self.timestamp_after_max_ms = timestamp_after_max_ms
        self.compression_codec = compression_codec
        self.compression_level = compression_level
        self.compact = compact
        self.magic = magic
        self.refuses_zstd = refuses_zstd
        self.limits_timestamps = timestamp_type is TimestampType.CREATE_TIME and (
            timestamp_before_max_ms < NO_TIMESTAMP_LIMIT or timestamp_after_max_ms < NO_TIMESTAMP_LIMIT
        )
        self.takes_log_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
