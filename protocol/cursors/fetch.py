"""Reads Fetch requests and writes their responses: all versions, any number of partitions, from consumers and followers."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, final

from ottla.protocol.cursors import fields
from ottla.protocol.cursors.request_reader import END, FORGOTTEN, PARTITION, RequestReader
from ottla.protocol.cursors.response_writer import NodeEndpoints, Piece, ResponseWriter, Sized, node_endpoints_field
from ottla.protocol.schema.wire import InvalidTaggedField, UnsupportedField, tagged_fields
from ottla.protocol.uuid import ZERO_UUID

FIRST_WITH_MAX_BYTES: Final = 3
FIRST_WITH_ISOLATION_LEVEL: Final = 4
FIRST_WITH_LOG_START_OFFSET: Final = 5
FIRST_WITH_SESSION: Final = 7
FIRST_WITH_LEADER_EPOCH: Final = 9
FIRST_WITH_RACK: Final = 11
FIRST_FLEXIBLE: Final = 12
FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_REPLICA_STATE: Final = 15
FIRST_WITH_NODE_ENDPOINTS: Final = 16
FIRST_WITH_DIRECTORY_ID: Final = 17
FIRST_WITH_HIGH_WATERMARK: Final = 18

NO_EPOCH: Final = -1
NO_REPLICA: Final = -1
NO_OFFSET: Final = -1
UNLIMITED: Final = 2**31 - 1
UUID_BYTES: Final = 16

_diverging_epoch = Struct(">iqx").pack
_current_leader = Struct(">iix").pack


@final
class FetchReader(RequestReader):
    """A Fetch request. `topic` is a name in UTF-8, from version 13 on an id.

    `rack_id`, `cluster_id`, and from version 15 on `replica_id` and `replica_epoch`, are at the end of the request, so they are known once
    it is verified.
    """

    __slots__ = (
        "cluster_id",
        "current_leader_epoch",
        "fetch_offset",
        "isolation_level",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "partition_max_bytes",
        "rack_id",
        "replica_directory_id",
        "replica_epoch",
        "replica_id",
        "session_epoch",
        "session_id",
    )

    def __init__(self, frame: memoryview, offset: int, version: int) -> None:
        self.rack_id = b""
        self.cluster_id: bytes | None = None
        self.replica_id = NO_REPLICA
        self.replica_epoch = NO_EPOCH
        self.max_bytes = UNLIMITED
        self.isolation_level = 0
        self.session_id = 0
        self.session_epoch = NO_EPOCH
        self.current_leader_epoch = NO_EPOCH
        self.fetch_offset = 0
        self.last_fetched_epoch = NO_EPOCH
        self.log_start_offset = NO_OFFSET
        self.partition_max_bytes = 0
        self.replica_directory_id = ZERO_UUID
        self._begin(frame, offset, version, version >= FIRST_FLEXIBLE)

    def _read_head(self) -> None:
        data = self.data
        version = self.version
        at = self.at
        if version < FIRST_WITH_REPLICA_STATE:
            self.replica_id = fields.int32(data, at)
            at += 4
        self.max_wait_ms = fields.int32(data, at)
        self.min_bytes = fields.int32(data, at + 4)
        at += 8
        if version >= FIRST_WITH_MAX_BYTES:
            self.max_bytes = fields.int32(data, at)
            at += 4
        if version >= FIRST_WITH_ISOLATION_LEVEL:
            self.isolation_level = fields.int8(data, at)
            at += 1
        if version >= FIRST_WITH_SESSION:
            self.session_id = fields.int32(data, at)
            self.session_epoch = fields.int32(data, at + 4)
            at += 8
        self.at = at

    def _read_topic(self) -> None:
        self.topic = self._topic_id() if self.version >= FIRST_WITH_TOPIC_IDS else self._string()

    def _read_partition(self) -> int:
        data = self.data
        version = self.version
        at = self.at
        if version >= FIRST_FLEXIBLE:
            (
                self.index,
                self.current_leader_epoch,
                self.fetch_offset,
                self.last_fetched_epoch,
                self.log_start_offset,
                self.partition_max_bytes,
            ) = fields.read_asked_after_epoch(data, at)
            self.at = self._read_partition_tags(at + 32)
        elif version >= FIRST_WITH_LEADER_EPOCH:
            (
                self.index,
                self.current_leader_epoch,
                self.fetch_offset,
                self.log_start_offset,
                self.partition_max_bytes,
            ) = fields.read_asked_in_epoch(data, at)
            self.at = at + 28
        elif version >= FIRST_WITH_LOG_START_OFFSET:
            self.index, self.fetch_offset, self.log_start_offset, self.partition_max_bytes = fields.read_asked_with_start(data, at)
            self.at = at + 24
        else:
            self.index, self.fetch_offset, self.partition_max_bytes = fields.read_asked(data, at)
            self.at = at + 16
        return PARTITION

    def _read_partition_tags(self, at: int) -> int:
        if self.version < FIRST_WITH_DIRECTORY_ID:
            return self._skip_tagged_fields(at)
        self.replica_directory_id = ZERO_UUID
        count, at = fields.uvarint(self.data, at)
        for _ in range(count):
            tag, at, end = self._begin_tagged_field(at)
            if tag == 0:
                self.replica_directory_id = fields.take(self.data, at, at + UUID_BYTES)
                if end != at + UUID_BYTES:
                    raise InvalidTaggedField("a replica directory id is not as long as its tag says")
            elif tag == 1 and self.version >= FIRST_WITH_HIGH_WATERMARK and end != at + 8:
                raise InvalidTaggedField("a high watermark is not as long as its tag says")
            at = end
        return at

    def _read_forgotten(self) -> int:
        self.index = fields.int32(self.data, self.at)
        self.at += 4
        return FORGOTTEN

    def _end_section(self) -> int:
        if self._section == PARTITION and self.version >= FIRST_WITH_SESSION:
            self.topics_left = self._count()
            return FORGOTTEN
        if self.version >= FIRST_WITH_RACK:
            self.rack_id = self._string()
        if self.is_flexible:
            self._read_request_tags()
        return END

    def _read_request_tags(self) -> None:
        count, at = fields.uvarint(self.data, self.at)
        for _ in range(count):
            tag, at, end = self._begin_tagged_field(at)
            if tag == 0:
                self.at = at
                self.cluster_id = self._nullable_string()
                at = self.at
            elif tag == 1 and self.version >= FIRST_WITH_REPLICA_STATE:
                self.replica_id = fields.int32(self.data, at)
                self.replica_epoch = fields.int64(self.data, at + 4)
                at = self._skip_tagged_fields(at + 12)
            else:
                at = end
            if at != end:
                raise InvalidTaggedField(f"tagged field {tag} of a Fetch is not as long as its tag says")
        self.at = at


@final
class FetchAnswer(ResponseWriter):
    """The response header and the response to a Fetch, in parts. Records are separate parts."""

    __slots__ = ("_head_at", "_numbers_bytes")

    def __init__(self, version: int, correlation_id: int) -> None:
        self._begin(version, correlation_id, version >= FIRST_FLEXIBLE, version >= FIRST_WITH_TOPIC_IDS)
        # Index, error code and high watermark; then the last stable offset; then the log start offset. The version decides how many are
        # kept.
        self._numbers_bytes = 30 if version >= FIRST_WITH_LOG_START_OFFSET else 22 if version >= FIRST_WITH_ISOLATION_LEVEL else 14
        self._head_at = self._at
        self._at += 10 if version >= FIRST_WITH_SESSION else 4 if version >= 1 else 0
        self._begin_topics()

    def put(
        self,
        index: int,
        error_code: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        aborted: Sequence[tuple[int, int]] | None,
        preferred_read_replica: int,
        records: Sized | None,
    ) -> None:
        """Write the result of reading a partition of the current topic. None stands for empty records, not for null.

        `aborted` has (producer id, first offset). Raises UnsupportedField for a preferred replica before version 11.
        """
        self._begin_partition(index, error_code, high_watermark, last_stable_offset, log_start_offset)
        self._put_aborted(aborted)
        self._put_preferred_read_replica(preferred_read_replica)
        self._put_records(0 if records is None else len(records), records)
        if self.is_flexible:
            self._put(b"\0")

    def put_diverging(
        self,
        index: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        aborted: Sequence[tuple[int, int]] | None,
        epoch: int,
        end_offset: int,
    ) -> None:
        """Write the offset at which the logs of leader and reader diverge, from version 12 on. Raises UnsupportedField before it."""
        self._begin_partition(index, 0, high_watermark, last_stable_offset, log_start_offset)
        self._put_aborted(aborted)
        self._put_preferred_read_replica(NO_REPLICA)
        self._put_records(0, None)
        self._check(FIRST_FLEXIBLE, "a diverging epoch")
        self._put(tagged_fields([(0, _diverging_epoch(epoch, end_offset))], None))

    def put_failed(
        self,
        index: int,
        error_code: int,
        aborted: Sequence[tuple[int, int]] | None,
        records: bytes | None,
        leader_id: int,
        leader_epoch: int,
    ) -> None:
        """Write the error of a partition that was not read. Records are empty or null; `leader_id` is -1 for no leader.

        Raises UnsupportedField for a leader before version 12.
        """
        self._begin_partition(index, error_code, NO_OFFSET, NO_OFFSET, NO_OFFSET)
        self._put_aborted(aborted)
        self._put_preferred_read_replica(NO_REPLICA)
        self._put_records(-1 if records is None else len(records), records)
        tags = []
        if (leader_id, leader_epoch) != (NO_REPLICA, NO_EPOCH):
            self._check(FIRST_FLEXIBLE, "a current leader")
            tags = [(1, _current_leader(leader_id, leader_epoch))]
        if self.is_flexible:
            self._put(tagged_fields(tags, None))

    def finish(self, throttle_time_ms: int, error_code: int, session_id: int, node_endpoints: NodeEndpoints) -> list[Piece]:
        """The parts of the response, without its size. `node_endpoints` are the leaders named in it, from version 16 on."""
        self._end_topics()
        at = self._head_at
        if self.version >= 1:
            fields.put_int32(self._room, at, throttle_time_ms)
        if self.version >= FIRST_WITH_SESSION:
            fields.put_int16(self._room, at + 4, error_code)
            fields.put_int32(self._room, at + 6, session_id)
        if self.is_flexible:
            self._put(node_endpoints_field(node_endpoints) if self.version >= FIRST_WITH_NODE_ENDPOINTS else b"\0")
        return self._pieces()

    def _begin_partition(self, index: int, error_code: int, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> None:
        self._begin_element(60)
        at = self._at
        fields.put_partition(self._room, at, index, error_code, high_watermark, last_stable_offset, log_start_offset)
        self._at = at + self._numbers_bytes

    def _put_aborted(self, aborted: Sequence[tuple[int, int]] | None) -> None:
        if self.version < FIRST_WITH_ISOLATION_LEVEL:
            return
        if aborted is None:
            self._put(b"\0" if self.is_flexible else b"\xff\xff\xff\xff")
            return
        self._put_count(len(aborted))
        for producer_id, first_offset in aborted:
            self._make_room(17)
            at = self._at
            fields.put_two_int64(self._room, at, producer_id, first_offset)
            self._at = at + 16
            if self.is_flexible:
                self._put(b"\0")

    def _put_preferred_read_replica(self, broker_id: int) -> None:
        if self.version >= FIRST_WITH_RACK:
            self._make_room(4)
            fields.put_int32(self._room, self._at, broker_id)
            self._at += 4
        elif broker_id != NO_REPLICA:
            self._check(FIRST_WITH_RACK, "a preferred read replica")

    def _put_records(self, size: int, records: Sized | None) -> None:
        """Write the size of the records (-1 for null). The records themselves become a separate part."""
        self._make_room(5)
        if self.is_flexible:
            self._at = fields.put_uvarint(self._room, self._at, size + 1)
        else:
            fields.put_int32(self._room, self._at, size)
            self._at += 4
        if size > 0:
            assert records is not None
            self._insert(self._at, records)

    def _check(self, first_version: int, what: str) -> None:
        if self.version < first_version:
            raise UnsupportedField(f"{what} does not exist in version {self.version}")
