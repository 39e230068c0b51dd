"""Sends records: collects them into batches per partition, has one batch per partition in flight, and retries after
transient errors.

One batch in flight keeps the order of records across retries; batches of different partitions are sent concurrently.
The key determines the partition of a record, as in Java's default partitioner; without a key one batch has one partition (KIP-480).
With acks=all the producer is idempotent if the cluster allows it, so that a retry writes nothing twice.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, NamedTuple, Self

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection, readable
from ottla.client.errors import ClientError, ConnectionLost, Refused
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.murmur2 import partition_of_key
from ottla.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, increment_sequence
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.topic_partition import TopicPartition

ACKS_ALL: Final = -1
_RECORD_OVERHEAD_BYTES: Final = 20
_BACKOFF_SECONDS: Final = 0.1
_POLL_SECONDS: Final = 0.5
_NO_IDEMPOTENCE: Final = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)


class StickyPartition:
    """The partition of records without a key: it changes with each batch, among partitions with a leader."""

    __slots__ = ("_choose", "_current")

    def __init__(self, choose: Callable[[Sequence[int]], int]) -> None:
        """`choose` picks one at random."""
        self._choose = choose
        self._current: int | None = None

    def current(self, available: Sequence[int]) -> int:
        """The partition of the next record."""
        if self._current not in available:
            self._current = self._choose(available)
        assert self._current is not None
        return self._current

    def next_batch(self, available: Sequence[int]) -> None:
        """The batch is full: choose another partition if there is one."""
        others = [partition for partition in available if partition != self._current]
        self._current = self._choose(others or available)


class OutgoingRecord(NamedTuple):
    """A record to send. Without a partition the key decides; without a timestamp the current time is used."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerSettings(NamedTuple):
    """Options of Kafka's producer; `codec` is the number of a CompressionCodec."""

    acks: int = ACKS_ALL
    codec: int = 0
    compression_level: int | None = None
    linger_seconds: float = 0.005
    batch_bytes: int = 262_144
    buffer_bytes: int = 32 * 1024 * 1024
    request_timeout_ms: int = 30_000
    delivery_timeout_seconds: float = 120.0


DEFAULTS: Final = ProducerSettings()


class Delivery(NamedTuple):
    """A batch that was acknowledged (offset -1 with acks=0), or failed with an error."""

    partition: TopicPartition
    base_offset: int
    records: int
    bytes: int
    error: ClientError | None


class _Batch:
    __slots__ = ("begun_at", "bytes", "failure", "is_sent", "look_at", "may_be_written", "not_before", "partition", "records", "sent_at",
                 "sequence")  # fmt: skip

    def __init__(self, partition: TopicPartition, begun_at: float) -> None:
        self.partition = partition
        self.records: list[Record] = []
        self.bytes = 0
        self.begun_at = begun_at
        self.not_before = 0.0
        self.sent_at = 0.0  # time of the current attempt
        self.look_at = 0.0  # time of the next look whether the leader has left the cluster
        self.sequence = NO_SEQUENCE
        self.is_sent = False
        self.failure: ClientError | None = None  # of the last attempt
        self.may_be_written = False  # it was sent, and the answer was lost or left that open


class Producer:
    """Sends records to one topic: alternate `send` and `poll`, and call `flush` at the end. Both call `on_delivery`."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        settings: ProducerSettings = DEFAULTS,
        on_delivery: Callable[[Delivery], None] | None = None,
        *,
        choose: Callable[[Sequence[int]], int] = random.choice,
        may_create_topic: bool = False,
    ) -> None:
        """`choose` picks the partition of records without a key. Without `on_delivery`, `flush` raises the first failure.

        Raises ClientError when the topic does not exist.
        """
        self._cluster = cluster
        self._topic = topic
        self._settings = settings
        self._failure: ClientError | None = None
        self._on_delivery = on_delivery or self._keep_failure
        described = cluster.until_done(lambda: cluster.topic(topic, may_create=may_create_topic))
        self._count = len(described.partitions)
        self._available = [partition.partition_index for partition in described.partitions if partition.leader_id >= 0]
        self._sticky = StickyPartition(choose)
        self._open: dict[int, _Batch] = {}
        self._waiting: dict[int, deque[_Batch]] = {number: deque() for number in range(self._count)}
        self._connections: dict[int, Connection] = {}
        self._in_flight: dict[Connection, deque[list[_Batch]]] = {}
        self._muted: set[int] = set()
        self._buffered = 0
        self._sequences: dict[int, int] = {}
        self._uncertain: dict[int, ClientError] = {}
        """Partitions with a batch that failed although it may be written, and the reason. A broker would recognise another batch with the
        same sequence as a duplicate, and acknowledge it without writing it."""
        self._producer_id, self._producer_epoch = self._ask_producer_id()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Send everything and close; after an exception only close."""
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def _ask_producer_id(self) -> tuple[int, int]:
        if self._settings.acks != ACKS_ALL:
            return NO_PRODUCER_ID, NO_PRODUCER_EPOCH

        def attempt() -> tuple[int, int]:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = self._cluster.ask(self._cluster.any_connection, request, InitProducerIdResponse)
            if answer.error_code:
                raise Refused("a producer id", answer.error_code)
            return answer.producer_id, answer.producer_epoch

        try:
            return self._cluster.until_done(attempt)
        except Refused as error:
            if error.code not in _NO_IDEMPOTENCE:
                raise
            return NO_PRODUCER_ID, NO_PRODUCER_EPOCH

    # ---- taking records

    def send(self, record: OutgoingRecord) -> int:
        """Add a record; returns its partition. Waits for the brokers when the buffer is full. Raises ClientError for a
        partition that does not exist."""
        number = self._partition_of(record)
        now = time.monotonic()
        batch = self._open.get(number)
        size = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size += sum(len(key) + len(value or b"") + 4 for key, value in record.headers)
        if batch is not None and batch.bytes + size > self._settings.batch_bytes:
            self._close_batch(number)
            if record.partition is None and record.key is None:
                self._sticky.next_batch(self._available or range(self._count))
                return self.send(record)
            batch = None
        if batch is None:
            batch = self._open[number] = _Batch(TopicPartition(self._topic, number), now)
        timestamp = int(time.time() * 1000) if record.timestamp_ms is None else record.timestamp_ms
        batch.records.append(Record(len(batch.records), timestamp, record.key, record.value, record.headers))
        batch.bytes += size
        self._buffered += size
        while self._buffered > self._settings.buffer_bytes:
            self.poll(_POLL_SECONDS)
        return number

    def _partition_of(self, record: OutgoingRecord) -> int:
        if record.partition is not None:
            if not 0 <= record.partition < self._count:
                raise ClientError(f"topic {self._topic} has no partition {record.partition}: its last one is {self._count - 1}")
            return record.partition
        if record.key is not None:
            return partition_of_key(record.key, self._count)
        return self._sticky.current(self._available or range(self._count))

    def _close_batch(self, number: int) -> None:
        self._waiting[number].append(self._open[number])
        del self._open[number]  # after it waits: an interrupt in between loses nothing

    def _is_busy(self, number: int) -> bool:
        """Whether another batch of the partition is sent before its open one, which takes further records meanwhile.

        If it were closed, slow answers would leave a queue of small batches, of which the last ones grow too old.
        """
        return bool(self._waiting[number])

    @property
    def next_deadline(self) -> float | None:
        """Time (monotonic) at which the oldest open batch that can be sent has lingered long enough; None when there is none."""
        begun = [batch.begun_at for number, batch in self._open.items() if not self._is_busy(number)]
        return min(begun) + self._settings.linger_seconds if begun else None

    @property
    def has_work(self) -> bool:
        """Whether some records are not delivered yet."""
        return bool(self._buffered)

    # ---- sending

    def poll(self, timeout_seconds: float = 0.0) -> None:
        """Send batches that are due and process answers, waiting for one at most `timeout_seconds`."""
        now = time.monotonic()
        is_full = self._buffered > self._settings.buffer_bytes  # no record can join a batch, so none lingers
        for number, batch in list(self._open.items()):
            if (is_full or now - batch.begun_at >= self._settings.linger_seconds) and not self._is_busy(number):
                self._close_batch(number)
        self._send_waiting(now)
        self._receive(timeout_seconds)

    def flush(self) -> None:
        """Send everything and wait until each batch is delivered or has failed. Raises ClientError as `__init__` says."""
        for number in list(self._open):
            self._close_batch(number)
        while self.has_work:
            self.poll(_POLL_SECONDS)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def reconnect(self) -> None:
        """Go on after an interrupt: send again, on new connections, what may be sent. An idempotent producer writes nothing twice.

        At the interrupt a request may be half sent, or an answer half read.
        """
        self._cluster.close()
        self.close()
        self._muted.clear()
        for number, queue in self._waiting.items():
            if queue and self._open.get(number) is queue[-1]:
                del self._open[number]
            if queue and queue[0].sent_at:
                queue[0].is_sent = True
                self._again_or_give_up(queue[0], ConnectionLost(f"{queue[0].partition}: interrupted"))
        self._buffered = sum(batch.bytes for batch in chain(self._open.values(), *self._waiting.values()))

    def _keep_failure(self, delivery: Delivery) -> None:
        self._failure = self._failure or delivery.error

    def close(self) -> None:
        """Close the connections; undelivered records are lost."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._in_flight.clear()

    def _send_waiting(self, now: float) -> None:
        by_leader: dict[int, list[_Batch]] = {}
        for number, queue in self._waiting.items():
            if not queue or number in self._muted or queue[0].not_before > now:
                continue
            if number in self._uncertain:
                reason = f"not sent, since the batch before it may be written or not: {self._uncertain[number]}"
                for batch in list(queue):
                    self._done(batch, -1, ClientError(f"{batch.partition}: {reason}"))
                continue
            batch = queue[0]
            if now >= self._deadline_of(batch):  # it has grown too old since its last attempt: its sender takes it for failed
                seconds = self._settings.delivery_timeout_seconds
                self._give_up(batch, batch.failure or ClientError(f"{batch.partition}: not delivered within {seconds:g} s"))
                continue
            try:
                with self._cluster.until(self._deadline_of(batch), once=True):  # it is asked again with the next attempt to send
                    leader = self._cluster.leader(batch.partition)
            except (Refused, ConnectionLost) as error:
                self._again_or_give_up(batch, error)
                continue
            by_leader.setdefault(leader, []).append(batch)
        for leader, batches in by_leader.items():
            self._send_to(leader, batches, now)

    def _send_to(self, leader: int, batches: list[_Batch], now: float) -> None:
        for batch in batches:
            batch.sent_at = now
            batch.look_at = now + self._cluster.look_seconds
        request = ProduceRequest(
            acks=self._settings.acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=self._topic,
                    partition_data=[
                        PartitionProduceData(index=batch.partition.partition, records=self._encoded(batch)) for batch in batches
                    ],
                )
            ],
        )
        is_answered = self._settings.acks != 0
        try:
            # A separate connection: metadata is requested while answers to Produce are pending.
            connection = self._connections.get(leader)
            if connection is None:
                with self._cluster.until(min(map(self._deadline_of, batches)), once=True):
                    connection = self._connections[leader] = self._cluster.new_connection(self._cluster.broker_address(leader))
            connection.send(request, is_answered=is_answered)
        except ConnectionLost as error:
            broken = self._connections.pop(leader, None)
            if broken is not None and broken in self._in_flight:
                self._lose(broken, error)
            elif broken is not None:
                broken.close()
            for batch in batches:
                self._again_or_give_up(batch, error)
            return
        for batch in batches:
            self._muted.add(batch.partition.partition)
            batch.is_sent = True
        if is_answered:
            self._in_flight.setdefault(connection, deque()).append(batches)
        else:
            for batch in batches:
                self._done(batch, -1, None)

    def _encoded(self, batch: _Batch) -> bytes:
        number = batch.partition.partition
        if self._producer_id != NO_PRODUCER_ID and batch.sequence == NO_SEQUENCE:
            batch.sequence = self._sequences.get(number, 0)
        return bytes(
            build_batch(
                batch.records,
                self._settings.codec,
                base_offset=0,
                level=self._settings.compression_level,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=batch.sequence,
            )
        )

    # ---- answers

    def _receive(self, timeout_seconds: float) -> None:
        if not self._in_flight:
            if self._buffered and timeout_seconds and any(self._waiting.values()):
                time.sleep(min(timeout_seconds, _BACKOFF_SECONDS))
            return
        ready = readable(self._in_flight, timeout_seconds)
        limit = self._settings.request_timeout_ms / 1000 + self._cluster.timeout_seconds
        for connection in list(self._in_flight):
            if connection in ready:
                self._take_answers(connection)
            elif self._is_overdue(self._in_flight[connection][0], limit):
                self._lose(connection, ConnectionLost(f"the broker at {connection.address} did not answer in time"))
            elif self._has_left(connection):
                self._lose(connection, ConnectionLost(f"the broker at {connection.address} did not answer, and has left the cluster"))

    def _has_left(self, connection: Connection) -> bool:
        """Whether the broker has left the cluster without an answer. Looks from time to time."""
        now = time.monotonic()
        first = self._in_flight[connection][0][0]
        if now < first.look_at:
            return False
        first.look_at = now + self._cluster.look_seconds
        return self._cluster.has_left(connection.address)

    def _is_overdue(self, batches: list[_Batch], limit: float) -> bool:
        """Whether the request with these batches has waited too long for its answer, or one of the batches for its delivery."""
        now = time.monotonic()
        return now - batches[0].sent_at > limit or any(now >= self._deadline_of(batch) for batch in batches)

    def _deadline_of(self, batch: _Batch) -> float:
        """Time (monotonic) at which the batch has failed."""
        return batch.begun_at + self._settings.delivery_timeout_seconds

    def _take_answers(self, connection: Connection) -> None:
        try:
            while connection.in_flight and (answer := connection.receive(0)) is not None:
                assert isinstance(answer, ProduceResponse)
                batches = self._in_flight[connection].popleft()
                results = {partition.index: partition for topic in answer.responses for partition in topic.partition_responses}
                for batch in batches:
                    self._on_result(batch, results.get(batch.partition.partition))
        except ConnectionLost as error:
            self._lose(connection, error)
            return
        if not self._in_flight[connection]:
            del self._in_flight[connection]

    def _lose(self, connection: Connection, error: ConnectionLost) -> None:
        connection.close()
        self._connections = {leader: known for leader, known in self._connections.items() if known is not connection}
        for batches in self._in_flight.pop(connection):
            for batch in batches:
                self._muted.discard(batch.partition.partition)
                self._again_or_give_up(batch, error)

    def _on_result(self, batch: _Batch, result: PartitionProduceResponse | None) -> None:
        self._muted.discard(batch.partition.partition)
        if result is None:
            self._done(batch, -1, ClientError(f"{batch.partition}: the broker's answer lacks the batch"))
        elif result.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._done(batch, result.base_offset, None)
        elif result.error_code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE) and len(batch.records) > 1:
            self._split(batch)
        else:
            reasons = [error.batch_index_error_message for error in result.record_errors if error.batch_index_error_message]
            error = Refused(str(batch.partition), result.error_code, result.error_message or next(iter(reasons), None))
            self._again_or_give_up(batch, error)

    def _split(self, batch: _Batch) -> None:
        queue = self._waiting[batch.partition.partition]
        queue.popleft()
        middle = len(batch.records) // 2
        for records, size in ((batch.records[middle:], batch.bytes - batch.bytes // 2), (batch.records[:middle], batch.bytes // 2)):
            half = _Batch(batch.partition, batch.begun_at)
            half.records = [record._replace(offset=at) for at, record in enumerate(records)]
            half.bytes = size
            queue.appendleft(half)

    def _again_or_give_up(self, batch: _Batch, error: ConnectionLost | Refused) -> None:
        now = time.monotonic()
        may_pass = isinstance(error, ConnectionLost) or error.code.retriable
        batch.may_be_written |= may_pass and batch.is_sent
        batch.failure = error
        if may_pass and now < self._deadline_of(batch):
            batch.not_before = now + _BACKOFF_SECONDS
            self._cluster.forget(self._topic)
        else:
            self._give_up(batch, error)

    def _give_up(self, batch: _Batch, error: ClientError) -> None:
        if batch.may_be_written and batch.sequence != NO_SEQUENCE:
            self._uncertain[batch.partition.partition] = error
        self._done(batch, -1, error)

    def _done(self, batch: _Batch, base_offset: int, error: ClientError | None) -> None:
        number = batch.partition.partition
        self._muted.discard(number)
        if batch.sequence != NO_SEQUENCE and error is None:  # first: after an interrupt the next batch must not have the same one
            self._sequences[number] = increment_sequence(batch.sequence, len(batch.records))
        self._waiting[number].remove(batch)
        self._buffered -= batch.bytes
        self._on_delivery(Delivery(batch.partition, base_offset, len(batch.records), batch.bytes, error))
