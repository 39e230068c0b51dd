"""Reads Fetch requests and writes their responses, by way of the generated codec."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from protocol.cursors.kinds import END, FORGOTTEN, NOTHING, PARTITION
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

_correlation_id = Struct(">i").pack
_flexible_header = Struct(">ib").pack


class FetchReader:
    """A Fetch request."""

    def __init__(self, frame: memoryview, offset: int, version: int) -> None:
        request, _ = FetchRequest.decode(frame, version, offset)
        self.version = version
        self.replica_id = request.replica_id if version < 15 else request.replica_state.replica_id
        self.max_wait_ms = request.max_wait_ms
        self.min_bytes = request.min_bytes
        self.max_bytes = request.max_bytes
        self.isolation_level = request.isolation_level
        self.session_id = request.session_id
        self.session_epoch = request.session_epoch
        self.rack_id = request.rack_id.encode()
        self.topic = b""
        self.index = -1
        self.current_leader_epoch = -1
        self.fetch_offset = -1
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        self.partition_max_bytes = 0
        self._request = request
        self._elements = self._walk()

    def _walk(self) -> Any:
        for topic in self._request.topics:
            self.topic = topic.topic.encode() if self.version < 13 else topic.topic_id
            for asked in topic.partitions:
                self.index = asked.partition
                self.current_leader_epoch = asked.current_leader_epoch
                self.fetch_offset = asked.fetch_offset
                self.last_fetched_epoch = asked.last_fetched_epoch
                self.log_start_offset = asked.log_start_offset
                self.partition_max_bytes = asked.partition_max_bytes
                yield PARTITION
            yield NOTHING
        for forgotten in self._request.forgotten_topics_data:
            self.topic = forgotten.topic.encode() if self.version < 13 else forgotten.topic_id
            for self.index in forgotten.partitions:
                yield FORGOTTEN
        while True:
            yield END

    def verify(self, limit: int) -> bool:
        return True

    def keep(self) -> None:
        pass

    def advance(self) -> int:
        return next(self._elements)


class FetchAnswer:
    """The response to a Fetch."""

    def __init__(self, version: int, correlation_id: int) -> None:
        self.version = version
        self._correlation_id = correlation_id
        self._topics: list[FetchableTopicResponse] = []
        self._topic = b""
        self._is_open = False

    def begin_topic(self, topic: bytes) -> None:
        if topic != self._topic:
            self._topic = topic
            self._is_open = False

    def _put(self, data: PartitionData) -> None:
        if not self._is_open:
            self._is_open = True
            if self.version < 13:
                self._topics.append(FetchableTopicResponse(topic=self._topic.decode(), partitions=[]))
            else:
                self._topics.append(FetchableTopicResponse(topic_id=self._topic, partitions=[]))
        self._topics[-1].partitions.append(data)

    def put(
        self,
        index: int,
        error_code: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        aborted: Sequence[tuple[int, int]] | None,
        preferred_read_replica: int,
        region: Any,
    ) -> None:
        self._put(
            PartitionData(
                partition_index=index,
                error_code=error_code,
                high_watermark=high_watermark,
                last_stable_offset=last_stable_offset,
                log_start_offset=log_start_offset,
                aborted_transactions=None if aborted is None else [AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted],
                preferred_read_replica=preferred_read_replica,
                records=b"" if region is None else region,
            )
        )

    def put_diverging(
        self, index: int, high_watermark: int, last_stable_offset: int, log_start_offset: int, epoch: int, end_offset: int
    ) -> None:
        self._put(
            PartitionData(
                partition_index=index,
                high_watermark=high_watermark,
                last_stable_offset=last_stable_offset,
                log_start_offset=log_start_offset,
                diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
                aborted_transactions=None,
                records=b"",
            )
        )

    def put_failed(
        self,
        index: int,
        error_code: int,
        aborted: Sequence[tuple[int, int]] | None,
        leader_id: int,
        leader_epoch: int,
        is_null: bool = False,
    ) -> None:
        data = PartitionData(
            partition_index=index,
            error_code=error_code,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            aborted_transactions=None if aborted is None else [],
            records=None if is_null else b"",
        )
        if (leader_id, leader_epoch) != (-1, -1):
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        self._put(data)

    def put_unsupported(self, index: int) -> None:
        self._put(PartitionData(partition_index=index, error_code=35, high_watermark=-1, records=None))

    def finish(
        self, throttle_time_ms: int, error_code: int, session_id: int, node_endpoints: Sequence[tuple[int, str, int, str | None]]
    ) -> list[Any]:
        response = FetchResponse(
            throttle_time_ms=throttle_time_ms,
            error_code=error_code,
            session_id=session_id,
            responses=self._topics,
            node_endpoints=[NodeEndpoint(node_id=n, host=h, port=p, rack=r) for n, h, p, r in node_endpoints],
        )
        header = _flexible_header(self._correlation_id, 0) if self.version >= 12 else _correlation_id(self._correlation_id)
        return [header, *response.encode_parts(self.version)]
