"""Reads Produce requests and writes their responses: all versions, any number of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import final

from ottla.protocol.cursors import fields
from ottla.protocol.cursors.request_reader import NO_RECORDS, NOTHING, PARTITION, RequestReader
from ottla.protocol.cursors.response_writer import NodeEndpoints, ResponseWriter, count_of, node_endpoints_field, string
from ottla.protocol.schema.wire import Truncated, UnsupportedField, tagged_fields

FIRST_FLEXIBLE = 9
FIRST_WITH_TRANSACTIONAL_ID = 3
FIRST_WITH_CURRENT_LEADER = 10
FIRST_WITH_TOPIC_IDS = 13

_leader = Struct(">iix").pack


@final
class ProduceReader(RequestReader):
    """A Produce request. `topic` is a name in UTF-8, from version 13 on an id.

    `start` and `end` give the place of a partition's records in the frame; `start` is NO_RECORDS for null.

    Once verified, it shows only the last occurrence of a partition that occurs several times, as Apache Kafka does.
    """

    __slots__ = ("_named", "_named_in_topic", "_superseded", "acks", "end", "start", "timeout_ms", "transactional_id")

    def __init__(self, frame: memoryview, offset: int, version: int) -> None:
        self.start = self.end = NO_RECORDS
        self._superseded: set[int] | None = None
        self._named: dict[bytes, dict[int, int]] | None = {}
        self._named_in_topic: dict[int, int] | None = None
        self._begin(frame, offset, version, version >= FIRST_FLEXIBLE)

    def _read_head(self) -> None:
        self.transactional_id: bytes | None = self._nullable_string() if self.version >= FIRST_WITH_TRANSACTIONAL_ID else None
        self.acks, self.timeout_ms = fields.read_acks_and_timeout(self.data, self.at)
        self.at += 6

    def _read_topic(self) -> None:
        self.topic = self._topic_id() if self.version >= FIRST_WITH_TOPIC_IDS else self._string()
        if self._named is not None:
            self._named_in_topic = self._named.setdefault(self.topic, {})

    def _read_partition(self) -> int:
        data = self.data
        begin = at = self.at
        self.index = fields.int32(data, at)
        if self.is_flexible:
            size, at = fields.uvarint(data, at + 4)
            size -= 1
        else:
            size = fields.int32(data, at + 4)
            at += 8
        if size < 0:
            self.start = self.end = NO_RECORDS
        else:
            if size > self.size - at:
                raise Truncated(f"records of {size} bytes where {self.size - at} are left")
            self.start = at
            self.end = at = at + size
        self.at = self._skip_tagged_fields(at) if self.is_flexible else at
        named = self._named_in_topic
        if named is not None:  # until the request is verified
            if self.index in named:
                if self._superseded is None:
                    self._superseded = set()
                self._superseded.add(named[self.index])
            named[self.index] = begin
        elif self._superseded is not None and begin in self._superseded:
            return NOTHING
        return PARTITION

    def begin_again(self) -> None:
        """See RequestReader."""
        self._named = self._named_in_topic = None
        RequestReader.begin_again(self)


@final
class ProduceAnswer(ResponseWriter):
    """The response header and the response to a Produce. Results can be corrected until it is finished."""

    __slots__ = ("_behind_partition", "_partition_bytes")

    def __init__(self, version: int, correlation_id: int) -> None:
        self._begin(version, correlation_id, version >= FIRST_FLEXIBLE, version >= FIRST_WITH_TOPIC_IDS)
        # Index, error code and base offset; then the append time; then the log start offset. All are written; the version decides how many
        # are kept.
        self._partition_bytes = 30 if version >= 5 else 22 if version >= 2 else 14
        # No record errors, no message, no tagged fields.
        self._behind_partition = b"\x01\x00\x00" if self.is_flexible else b"\x00\x00\x00\x00\xff\xff" if version >= 8 else b""
        self._begin_topics()

    def put(self, index: int, error_code: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> int:
        """Write the result of a partition of the current topic. Returns its place, for corrections."""
        place = self._begin_partition(index, error_code, base_offset, log_append_time_ms, log_start_offset)
        self._at = fields.put_bytes(self._room, self._at, self._behind_partition)
        return place

    def put_failed(
        self,
        index: int,
        error_code: int,
        base_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        record_errors: Sequence[tuple[int, str | None]],
        error_message: str | None,
        leader_id: int,
        leader_epoch: int,
    ) -> int:
        """Write the result with (batch index, message) of each refused record, a message, and the leader, -1 for none.

        Raises UnsupportedField for a leader before version 10.
        """
        place = self._begin_partition(index, error_code, base_offset, log_append_time_ms, log_start_offset)
        self._put(self._behind_failed(record_errors, error_message, leader_id, leader_epoch))
        return place

    def put_later(self, index: int) -> int:
        """Reserve the place of a partition without a result yet; `fill` writes the result. Returns the place."""
        return self._begin_partition(index, 0, -1, -1, -1)

    def fill(
        self,
        place: int,
        error_code: int,
        base_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        record_errors: Sequence[tuple[int, str | None]],
        error_message: str | None,
        leader_id: int,
        leader_epoch: int,
    ) -> None:
        """Write the result at a reserved place, once: as `put_failed` does, or with error code 0 as `put` does."""
        self.correct(place, error_code, base_offset)
        if self.version >= 2:
            fields.put_int64(self._room, place + 14, log_append_time_ms)
        if self.version >= 5:
            fields.put_int64(self._room, place + 22, log_start_offset)
        self._insert(place + self._partition_bytes, self._behind_failed(record_errors, error_message, leader_id, leader_epoch))
        self._is_in_order = False

    def correct(self, place: int, error_code: int, base_offset: int) -> None:
        """Change a result that was written."""
        fields.put_int16(self._room, place + 4, error_code)
        fields.put_int64(self._room, place + 6, base_offset)

    def finish(self, throttle_time_ms: int, node_endpoints: NodeEndpoints) -> bytes:
        """The response, without its size. `node_endpoints` are the leaders named in it, from version 10 on."""
        self._end_topics()
        if self.version >= 1:
            self._make_room(4)
            fields.put_int32(self._room, self._at, throttle_time_ms)
            self._at += 4
        if self.is_flexible:
            self._put(node_endpoints_field(node_endpoints) if self.version >= FIRST_WITH_CURRENT_LEADER else b"\0")
        return self._joined()

    def _behind_failed(
        self, record_errors: Sequence[tuple[int, str | None]], error_message: str | None, leader_id: int, leader_epoch: int
    ) -> bytes:
        """The bytes after the numbers of a partition. Raises UnsupportedField for a leader before version 10."""
        flexible = self.is_flexible
        parts = []
        if self.version >= 8:
            parts.append(count_of(len(record_errors), flexible))
            for batch_index, message in record_errors:
                parts.append(batch_index.to_bytes(4, "big", signed=True) + string(message, flexible) + (b"\0" if flexible else b""))
            parts.append(string(error_message, flexible))
        if (leader_id, leader_epoch) != (-1, -1) and self.version < FIRST_WITH_CURRENT_LEADER:
            raise UnsupportedField(f"a current leader does not exist in version {self.version}")
        if flexible:
            leader = [] if (leader_id, leader_epoch) == (-1, -1) else [(0, _leader(leader_id, leader_epoch))]
            parts.append(tagged_fields(leader, None))
        return b"".join(parts)

    def _begin_partition(self, index: int, error_code: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> int:
        self._begin_element(40)
        place = self._at
        fields.put_partition(self._room, place, index, error_code, base_offset, log_append_time_ms, log_start_offset)
        self._at = place + self._partition_bytes
        return place
