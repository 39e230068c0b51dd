"""Reads the answer to a Fetch, all versions, on behalf of the followers that sent it."""

from __future__ import annotations

from typing import final

from ottla.protocol.cursors import fields
from ottla.protocol.cursors.fetch import (
    FIRST_FLEXIBLE,
    FIRST_WITH_ISOLATION_LEVEL,
    FIRST_WITH_LOG_START_OFFSET,
    FIRST_WITH_RACK,
    FIRST_WITH_SESSION,
    FIRST_WITH_TOPIC_IDS,
    NO_EPOCH,
    NO_OFFSET,
    NO_REPLICA,
    UUID_BYTES,
)
from ottla.protocol.cursors.request_reader import PARTITION, RequestReader
from ottla.protocol.schema.wire import InvalidLength, InvalidTaggedField


@final
class FetchAnswerReader(RequestReader):
    """The answer to a Fetch. `topic` is a name in UTF-8, from version 13 on an id. The records lie between `start` and `end`.

    Fields that followers do not need are skipped: aborted transactions, leaders, snapshots, endpoints and other tags.
    """

    __slots__ = (
        "diverging_end_offset",
        "diverging_epoch",
        "end",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "partition_error_code",
        "preferred_read_replica",
        "session_id",
        "start",
        "throttle_time_ms",
    )

    def __init__(self, frame: memoryview, offset: int, version: int) -> None:
        """`error_code` belongs to the request, `partition_error_code` to a partition."""
        self.throttle_time_ms = 0
        self.error_code = 0
        self.session_id = 0
        self.partition_error_code = 0
        self.high_watermark = NO_OFFSET
        self.last_stable_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.preferred_read_replica = NO_REPLICA
        self.diverging_epoch = NO_EPOCH
        self.diverging_end_offset = NO_OFFSET
        self.start = 0
        self.end = 0
        self._begin(frame, offset, version, version >= FIRST_FLEXIBLE)

    def records(self) -> memoryview:
        """A view of the records of the partition; empty when there are none."""
        return self.frame[self.start : self.end]

    def _read_head(self) -> None:
        data = self.data
        version = self.version
        if version >= 1:
            self.throttle_time_ms = fields.int32(data, self.at)
            self.at += 4
        if version >= FIRST_WITH_SESSION:
            self.error_code = fields.int16(data, self.at)
            self.session_id = fields.int32(data, self.at + 2)
            self.at += 6

    def _read_topic(self) -> None:
        if self.version >= FIRST_WITH_TOPIC_IDS:
            end = self.at + UUID_BYTES
            self.topic = fields.take(self.data, self.at, end)
            self.at = end
        else:
            self.topic = self._string()

    def _read_partition(self) -> int:
        data = self.data
        version = self.version
        at = self.at
        if version >= FIRST_WITH_LOG_START_OFFSET:
            (
                self.index,
                self.partition_error_code,
                self.high_watermark,
                self.last_stable_offset,
                self.log_start_offset,
            ) = fields.read_answered(data, at)
            at += 30
        else:
            self.index = fields.int32(data, at)
            self.partition_error_code = fields.int16(data, at + 4)
            self.high_watermark = fields.int64(data, at + 6)
            at += 14
            if version >= FIRST_WITH_ISOLATION_LEVEL:
                self.last_stable_offset = fields.int64(data, at)
                at += 8
        if version >= FIRST_WITH_ISOLATION_LEVEL:
            at = self._skip_aborted(at)
        if version >= FIRST_WITH_RACK:
            self.preferred_read_replica = fields.int32(data, at)
            at += 4
        at = self._read_records(at)
        self.at = self._read_partition_tags(at) if self.is_flexible else at
        return PARTITION

    def _skip_aborted(self, at: int) -> int:
        if self.is_flexible:
            count, at = fields.uvarint(self.data, at)
            count -= 1
        else:
            count = fields.int32(self.data, at)
            at += 4
        if not self.is_flexible:
            return at + 16 * max(count, 0)
        for _ in range(count):
            at = self._skip_tagged_fields(at + 16)
        return at

    def _read_records(self, at: int) -> int:
        if self.is_flexible:
            size, at = fields.uvarint(self.data, at)
            size -= 1
        else:
            size = fields.int32(self.data, at)
            at += 4
        if size > self.size - at:
            raise InvalidLength(f"{size} bytes of records where {self.size - at} are left")
        self.start = at
        self.end = at + max(size, 0)
        return self.end

    def _read_partition_tags(self, at: int) -> int:
        self.diverging_epoch = NO_EPOCH
        self.diverging_end_offset = NO_OFFSET
        count, at = fields.uvarint(self.data, at)
        for _ in range(count):
            tag, at, end = self._begin_tagged_field(at)
            if tag == 0:
                self.diverging_epoch = fields.int32(self.data, at)
                self.diverging_end_offset = fields.int64(self.data, at + 4)
                if self._skip_tagged_fields(at + 12) != end:
                    raise InvalidTaggedField("a diverging epoch is not as long as its tag says")
            at = end
        return at
