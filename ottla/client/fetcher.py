"""Reads records from partitions: one Fetch per leader in flight, positions advance, moved leaders are looked up again.

A partition without a leader, or with one that cannot be reached, keeps no other waiting.

With read_committed, records of aborted transactions are skipped by the lists in the answers; markers are never
returned.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, Self

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection, readable
from ottla.client.errors import ClientError, ConnectionLost, Refused
from ottla.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, by_topic
from ottla.protocol.conversion.old_logs import records_at
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.protocol.records.batch import BatchHeader, TimestampType, crc_is_valid, iter_batches
from ottla.protocol.records.builder import ControlRecordType, read_control_type
from ottla.protocol.records.errors import RecordFormatError, TooManyHeaders
from ottla.protocol.records.reader import Record
from ottla.protocol.topic_partition import TopicPartition

MAX_RECORDS: Final = 10_000
"""Records that are made at a time; a compressed batch may have millions of small ones."""
MAX_HEADERS: Final = 250_000
"""Headers that a record may have, and after which no more records are made; a compressed batch may have 64 million empty ones."""
_BACKOFF_SECONDS: Final = 0.1


class FetchSettings(NamedTuple):
    """The options of Kafka's consumer with the same names."""

    isolation: int = READ_UNCOMMITTED
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    max_partition_bytes: int = 1024 * 1024


DEFAULTS: Final = FetchSettings()


class FetchedBatch(NamedTuple):
    """The records of one batch from the position on, or some of them; none for markers and aborted batches."""

    partition: TopicPartition
    timestamp_type: TimestampType
    records: list[Record]
    next_offset: int


class _Asked(NamedTuple):
    """A request in flight."""

    positions: dict[TopicPartition, int]
    heard_at: float
    """Time (monotonic) of the last bytes of the answer, or of the request if there are none."""
    look_at: float = 0.0
    """Time (monotonic) of the next look whether the leader has left the cluster."""


class OffsetGone(ClientError):
    """A position is outside of the partition's range."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(f"{partition}: offset {offset} is out of range")


class Fetcher:
    """Reads the partitions in `positions`, which may be changed between polls."""

    def __init__(self, cluster: Cluster, positions: dict[TopicPartition, int], settings: FetchSettings = DEFAULTS) -> None:
        self.positions = positions
        self._cluster = cluster
        self._settings = settings
        self._in_flight: dict[Connection, _Asked] = {}
        self._connections: dict[int, Connection] = {}
        self._failing: dict[TopicPartition, tuple[float, ClientError]] = {}
        """Since when partitions cannot be read, and the last reason."""
        self._next_look = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._in_flight.clear()

    def failing(self, seconds: float) -> dict[TopicPartition, ClientError]:
        """The partitions that could not be read for so long, with the reason."""
        now = time.monotonic()
        return {each: error for each, (since, error) in self._failing.items() if each in self.positions and now - since >= seconds}

    def poll(self, timeout_seconds: float) -> Iterator[FetchedBatch]:
        """Wait for answers, and yield their batches; nothing when no leader answers in time.

        The position of a partition advances with each batch. Raises OffsetGone, Refused; ConnectionLost or Refused, too, for a
        partition that could not be read for as long as the timeout.
        """
        self._send()
        if not self._in_flight:
            time.sleep(min(timeout_seconds, _BACKOFF_SECONDS))
            return
        for connection in readable(self._in_flight, timeout_seconds):
            yield from self._take(connection)
        self._lose_silent()

    def _send(self) -> None:
        self._failing = {each: failure for each, failure in self._failing.items() if each in self.positions}
        asked = {partition for each in self._in_flight.values() for partition in each.positions}
        by_leader, without = self._cluster.led(self.positions)
        self._fail({each: Refused(str(each), ErrorCode.LEADER_NOT_AVAILABLE) for each in without})
        if without and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _BACKOFF_SECONDS
            for each in without:
                self._cluster.forget(each.topic)
        for leader, partitions in by_leader.items():
            wanted = [partition for partition in partitions if partition not in asked]
            connection = self._connections.get(leader)
            if not wanted or (connection is not None and connection in self._in_flight):
                continue
            positions = {partition: self.positions[partition] for partition in wanted}
            try:
                if connection is None:
                    connection = self._connections[leader] = self._cluster.new_connection(self._cluster.broker_address(leader))
                connection.send(self._request(positions))
            except ConnectionLost as error:
                self._lose(leader, positions, error)
                continue
            self._in_flight[connection] = _Asked(positions, time.monotonic())

    def _request(self, positions: dict[TopicPartition, int]) -> FetchRequest:
        settings = self._settings
        return FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=settings.isolation,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=number,
                            fetch_offset=positions[TopicPartition(topic, number)],
                            partition_max_bytes=settings.max_partition_bytes,
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(positions).items()
            ],
        )

    def _take(self, connection: Connection) -> Iterator[FetchedBatch]:
        try:
            answer = connection.receive(0)
        except ConnectionLost as error:
            self._lose(self._leader_at(connection), self._in_flight[connection].positions, error)
            return
        if answer is None:  # a part of it
            self._in_flight[connection] = self._in_flight[connection]._replace(heard_at=time.monotonic())
            return
        assert isinstance(answer, FetchResponse)
        asked = self._in_flight.pop(connection).positions
        if answer.error_code:
            self._wait_or_raise(Refused(f"fetching from {connection.address}", answer.error_code))
            return
        for topic in answer.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, data.partition_index)
                if not data.error_code:
                    self._failing.pop(partition, None)
                # The partition was reassigned, or its position changed, while the request was in flight: its data is
                # ignored.
                if partition in asked and self.positions.get(partition) == asked[partition]:
                    yield from self._records_of(partition, data)

    def _lose_silent(self) -> None:
        """Give up the requests of leaders that have left the cluster, or that have been silent for the timeout. The time for which they may
        wait for records does not count."""
        now = time.monotonic()
        max_wait_seconds = self._settings.max_wait_ms / 1000
        for connection, asked in list(self._in_flight.items()):
            silent_seconds = now - asked.heard_at - max_wait_seconds
            if silent_seconds < self._cluster.look_seconds or readable([connection], 0):
                continue
            error = None
            if silent_seconds > self._cluster.timeout_seconds:
                error = ConnectionLost(f"the broker at {connection.address} did not answer in time")
            elif now >= asked.look_at:
                self._in_flight[connection] = asked._replace(look_at=now + self._cluster.look_seconds)
                if self._cluster.has_left(connection.address):
                    error = ConnectionLost(f"the broker at {connection.address} did not answer, and has left the cluster")
            if error is not None:
                self._lose(self._leader_at(connection), asked.positions, error)

    def _leader_at(self, connection: Connection) -> int:
        return next(leader for leader, known in self._connections.items() if known is connection)

    def _lose(self, leader: int, asked: Mapping[TopicPartition, int], error: ConnectionLost) -> None:
        """Retry with new metadata. Raises ConnectionLost when a partition could not be read for as long as the timeout."""
        connection = self._connections.pop(leader, None)
        if connection is not None:
            connection.close()
            self._in_flight.pop(connection, None)
        self._fail(dict.fromkeys(asked, error))
        self._look_again()

    def _fail(self, errors: Mapping[TopicPartition, ClientError]) -> None:
        """Note that partitions cannot be read now. Raises the error of one that could not be for as long as the timeout."""
        now = time.monotonic()
        for partition, error in errors.items():
            since, _ = self._failing.get(partition, (now, error))
            self._failing[partition] = since, error
            if now - since > self._cluster.timeout_seconds:
                raise error

    def _wait_or_raise(self, error: Refused) -> None:
        if not error.code.retriable:
            raise error
        self._look_again()

    def _look_again(self) -> None:
        for partition in self.positions:
            self._cluster.forget(partition.topic)
        time.sleep(_BACKOFF_SECONDS)

    # ---- records

    def _records_of(self, partition: TopicPartition, data: PartitionData) -> Iterator[FetchedBatch]:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetGone(partition, self.positions[partition])
        if data.error_code:
            refused = Refused(str(partition), data.error_code)
            self._fail({partition: refused})
            self._wait_or_raise(refused)
            return
        if not data.records:
            return
        aborted = AbortedFilter(data.aborted_transactions or []) if self._settings.isolation == READ_COMMITTED else None
        header: BatchHeader | None = None
        try:
            for at, header in iter_batches(data.records):
                if not crc_is_valid(data.records, at):
                    raise ClientError(
                        f"{partition}: the checksum of the batch at offset {header.base_offset} is wrong; {_way_around(header)}"
                    )
                yield from self._batch(partition, data.records, at, header, aborted)
                if partition not in self.positions:
                    return  # the reader wants no more of it
        except RecordFormatError as error:
            around = f"; {_way_around(header)}" if header is not None and header.next_offset > self.positions[partition] else ""
            raise ClientError(
                f"{partition}: the records from offset {self.positions[partition]} on cannot be read: {error}{around}"
            ) from None

    def _batch(
        self, partition: TopicPartition, buffer: memoryview | bytes, at: int, header: BatchHeader, aborted: AbortedFilter | None
    ) -> Iterator[FetchedBatch]:
        position = self.positions[partition]
        hidden = aborted is not None and aborted.hides(header, buffer, at)
        is_readable = not header.is_control and not hidden
        records = records_at(buffer, at, header, first_offset=position, max_headers=MAX_HEADERS) if is_readable else iter(())
        while True:
            some, is_last, refused = _some(records)
            yield self._advanced(partition, header, some, header.next_offset if is_last else some[-1].offset + 1)
            if is_last or partition not in self.positions:
                return
            if refused is not None:
                raise refused

    def _advanced(self, partition: TopicPartition, header: BatchHeader, records: list[Record], next_offset: int) -> FetchedBatch:
        self.positions[partition] = max(self.positions[partition], next_offset)
        return FetchedBatch(partition, header.timestamp_type, records, next_offset)


def _way_around(header: BatchHeader) -> str:
    """How to read on behind a batch that cannot be read."""
    return f"its batch has offsets {header.base_offset} to {header.last_offset}, and reading can go on at {header.next_offset}"


def _some(records: Iterator[Record]) -> tuple[list[Record], bool, TooManyHeaders | None]:
    """The next records, within the limits of their number and of their headers; whether there are no more; the error of the one that
    follows them. Raises it if it is the first."""
    found: list[Record] = []
    headers = 0
    try:
        for record in records:
            found.append(record)
            headers += len(record.headers)
            if len(found) == MAX_RECORDS or headers > MAX_HEADERS:
                return found, False, None
    except TooManyHeaders as error:
        if not found:
            raise
        return found, False, error
    return found, True, None


class AbortedFilter:
    """Finds the batches of aborted transactions in an answer: those of a producer between the first offset and its
    abort marker."""

    def __init__(self, transactions: list[AbortedTransaction]) -> None:
        self._to_come = sorted(transactions, key=lambda transaction: transaction.first_offset)
        self._aborted: set[int] = set()

    def hides(self, header: BatchHeader, buffer: memoryview | bytes, at: int) -> bool:
        """Whether to skip the batch. Must be called for every batch in order."""
        while self._to_come and self._to_come[0].first_offset <= header.last_offset:
            self._aborted.add(self._to_come.pop(0).producer_id)
        if header.is_control:
            if read_control_type(buffer, at, header) is ControlRecordType.ABORT:
                self._aborted.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborted
