"""Holds the topic keys that the log and its validation use, as plain attributes.

`PartitionLog` makes one whenever its configuration changes. The hot path reads these attributes instead of looking up keys.
"""

from collections.abc import Mapping
from typing import final

from ottla.config.schema.metadata_version import record_magic
from ottla.config.topic import (
    CLEANUP_POLICY,
    COMPRESSION_GZIP_LEVEL,
    COMPRESSION_LZ4_LEVEL,
    COMPRESSION_TYPE,
    COMPRESSION_ZSTD_LEVEL,
    FILE_DELETE_DELAY_MS,
    FLUSH_MESSAGES,
    INDEX_INTERVAL_BYTES,
    MAX_COMPACTION_LAG_MS,
    MAX_MESSAGE_BYTES,
    MESSAGE_FORMAT_VERSION,
    MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    MESSAGE_TIMESTAMP_TYPE,
    PREALLOCATE,
    SEGMENT_BYTES,
    SEGMENT_INDEX_BYTES,
    SEGMENT_JITTER_MS,
    SEGMENT_MS,
    TopicConfig,
)
from ottla.protocol.records.batch import TimestampType
from ottla.protocol.records.compression import CODEC_BY_NAME, CompressionCodec
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.validation.rules import ValidationRules

_LEVEL_OF = {
    CompressionCodec.GZIP: COMPRESSION_GZIP_LEVEL,
    CompressionCodec.LZ4: COMPRESSION_LZ4_LEVEL,
    CompressionCodec.ZSTD: COMPRESSION_ZSTD_LEVEL,
}
_PRODUCER = "producer"
_UNCOMPRESSED = "uncompressed"


@final
class LogSettings:
    """A snapshot of the topic keys. Immutable."""

    __slots__ = (
        "file_delete_delay_ms",
        "flush_messages",
        "index_bytes",
        "index_interval_bytes",
        "preallocate",
        "roll_after_ms",
        "segment_bytes",
        "segment_jitter_ms",
        "segment_ms",
    )

    def __init__(self, config: TopicConfig) -> None:
        self.segment_bytes: int = config[SEGMENT_BYTES]
        self.segment_ms: int = config[SEGMENT_MS]
        max_lag_ms = config[MAX_COMPACTION_LAG_MS]
        is_limited = max_lag_ms > 0 and "compact" in config[CLEANUP_POLICY]
        self.roll_after_ms: int = min(self.segment_ms, max_lag_ms) if is_limited else self.segment_ms
        self.segment_jitter_ms: int = config[SEGMENT_JITTER_MS]
        self.index_bytes: int = config[SEGMENT_INDEX_BYTES]
        self.index_interval_bytes: int = config[INDEX_INTERVAL_BYTES]
        self.preallocate: bool = config[PREALLOCATE]
        self.file_delete_delay_ms: int = config[FILE_DELETE_DELAY_MS]
        self.flush_messages: int = config[FLUSH_MESSAGES]

    def to_numbers(self) -> dict[str, int]:
        """The values by name, for a process that has no configuration."""
        return {name: int(getattr(self, name)) for name in self.__slots__}

    @classmethod
    def of_numbers(cls, numbers: Mapping[str, int]) -> "LogSettings":
        """The settings with the values of `to_numbers`."""
        settings = cls.__new__(cls)
        for name in cls.__slots__:
            setattr(settings, name, numbers[name])
        return settings


def rules_for(topic_partition: TopicPartition, config: TopicConfig) -> ValidationRules:
    """The part of `config` that validation of produced batches needs."""
    name = config[COMPRESSION_TYPE]
    codec = None if name == _PRODUCER else CompressionCodec.NONE if name == _UNCOMPRESSED else CODEC_BY_NAME[name]
    level = _LEVEL_OF.get(codec) if codec is not None else None
    log_append_time = config[MESSAGE_TIMESTAMP_TYPE] == "LogAppendTime"
    return ValidationRules(
        topic_partition,
        max_message_bytes=config[MAX_MESSAGE_BYTES],
        timestamp_type=TimestampType.LOG_APPEND_TIME if log_append_time else TimestampType.CREATE_TIME,
        timestamp_before_max_ms=config[MESSAGE_TIMESTAMP_BEFORE_MAX_MS],
        timestamp_after_max_ms=config[MESSAGE_TIMESTAMP_AFTER_MAX_MS],
        compression_codec=codec,
        compression_level=None if level is None else config[level],
        compact="compact" in config[CLEANUP_POLICY],
        magic=record_magic(config[MESSAGE_FORMAT_VERSION]),
        refuses_zstd=not config.allows_zstd,
    )
