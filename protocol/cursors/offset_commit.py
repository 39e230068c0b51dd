"""Reads OffsetCommit and TxnOffsetCommit requests and writes their responses, all versions, any number of partitions."""

from __future__ import annotations

from typing import final

from ottla.protocol.cursors import fields
from ottla.protocol.cursors.request_reader import PARTITION, RequestReader
from ottla.protocol.cursors.response_writer import ResponseWriter

FIRST_WITH_MEMBER = 1
FIRST_WITH_RETENTION = 2
FIRST_WITH_THROTTLE_TIME = 3
FIRST_WITHOUT_RETENTION = 5
FIRST_WITH_LEADER_EPOCH = 6
FIRST_WITH_INSTANCE_ID = 7
FIRST_FLEXIBLE = 8
FIRST_WITH_TOPIC_IDS = 10
"""From this version on a request names topics by their ids (KIP-848)."""

UNSET = -1
"""A generation, an epoch, a producer or a time that the request does not name."""

TXN_LAYOUTS = (5, 5, 6, 8, 9, 9, 10)
"""By version of TxnOffsetCommit, the version of OffsetCommit with the same partitions and the same response."""

FIRST_TXN_WITH_MEMBER = 3


class OffsetCommitReader(RequestReader):
    """An OffsetCommit request. Strings are in UTF-8; from layout 10 on `topic` is an id.

    `layout` is the version of OffsetCommit that lays out partitions like this request.
    """

    __slots__ = (
        "commit_timestamp",
        "committed_leader_epoch",
        "committed_metadata",
        "committed_offset",
        "generation_id",
        "group_id",
        "group_instance_id",
        "layout",
        "member_id",
        "producer_epoch",
        "producer_id",
        "retention_time_ms",
        "transactional_id",
    )

    def __init__(self, frame: memoryview, offset: int, version: int, layout: int) -> None:
        self.layout = layout
        self.transactional_id: bytes | None = None
        self.producer_id = UNSET
        self.producer_epoch = UNSET
        self.generation_id = UNSET
        self.member_id = b""
        self.group_instance_id: bytes | None = None
        self.retention_time_ms = UNSET
        self.committed_offset = UNSET
        self.committed_leader_epoch = UNSET
        self.commit_timestamp = UNSET
        self.committed_metadata: bytes | None = None
        self._begin(frame, offset, version, layout >= FIRST_FLEXIBLE)

    def _read_head(self) -> None:
        version = self.version
        self.group_id = self._string()
        if version >= FIRST_WITH_MEMBER:
            self.generation_id = fields.int32(self.data, self.at)
            self.at += 4
            self.member_id = self._string()
        if version >= FIRST_WITH_INSTANCE_ID:
            self.group_instance_id = self._nullable_string()
        if FIRST_WITH_RETENTION <= version < FIRST_WITHOUT_RETENTION:
            self.retention_time_ms = fields.int64(self.data, self.at)
            self.at += 8

    def _read_topic(self) -> None:
        self.topic = self._topic_id() if self.layout >= FIRST_WITH_TOPIC_IDS else self._string()

    def _read_partition(self) -> int:
        at = self.at
        if self.layout >= FIRST_WITH_LEADER_EPOCH:
            self.index, self.committed_offset, self.committed_leader_epoch = fields.read_commit_in_epoch(self.data, at)
            self.at = at + 16
        elif self.layout == FIRST_WITH_MEMBER:
            self.index, self.committed_offset, self.commit_timestamp = fields.read_commit_with_time(self.data, at)
            self.at = at + 20
        else:
            self.index, self.committed_offset = fields.read_commit(self.data, at)
            self.at = at + 12
        self.committed_metadata = self._nullable_string()
        if self.is_flexible:
            self.at = self._skip_tagged_fields(self.at)
        return PARTITION


@final
class TxnOffsetCommitReader(OffsetCommitReader):
    """A TxnOffsetCommit request."""

    __slots__ = ()

    def _read_head(self) -> None:
        self.transactional_id = self._string()
        self.group_id = self._string()
        self.producer_id = fields.int64(self.data, self.at)
        self.producer_epoch = fields.int16(self.data, self.at + 8)
        self.at += 10
        if self.version >= FIRST_TXN_WITH_MEMBER:
            self.generation_id = fields.int32(self.data, self.at)
            self.at += 4
            self.member_id = self._string()
            self.group_instance_id = self._nullable_string()


@final
class OffsetCommitAnswer(ResponseWriter):
    """The response header and the response to an OffsetCommit of this version, or to a TxnOffsetCommit of this layout."""

    __slots__ = ("_partition_bytes", "_throttle_at")

    def __init__(self, version: int, correlation_id: int) -> None:
        self._begin(version, correlation_id, version >= FIRST_FLEXIBLE, version >= FIRST_WITH_TOPIC_IDS)
        self._throttle_at = self._at
        self._partition_bytes = 7 if self.is_flexible else 6
        if version >= FIRST_WITH_THROTTLE_TIME:
            self._at += 4
        self._begin_topics()

    def name_topic(self, topic: bytes) -> None:
        """Begin a topic that is written even without partitions."""
        self.begin_topic(topic)
        if self._topic is not self._opened:
            self._open_topic()

    def put(self, index: int, error_code: int) -> None:
        """Write the result of a partition of the current topic."""
        self._begin_element(7)
        fields.put_code(self._room, self._at, index, error_code)
        self._at += self._partition_bytes

    def finish(self, throttle_time_ms: int) -> bytes:
        """The response, without its size."""
        self._end_topics()
        if self.version >= FIRST_WITH_THROTTLE_TIME:
            fields.put_int32(self._room, self._throttle_at, throttle_time_ms)
        if self.is_flexible:
            self._put(b"\0")
        return self._joined()
