"""Plays members of a share group, and measures how many records they accept, or how soon they get new ones.

One thread with an epoll plays all members. Each has a connection with one ShareFetch in flight, whose acknowledgements are those of the
records before, as of clients. A request costs some 60 µs here and has up to 500 records. Their bytes are not looked at.
"""

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Final
from uuid import uuid4

from benchmarks.loadgen.runner import LoadFailedError, Measured
from benchmarks.loadgen.transactional import without_collections
from benchmarks.loads.admin import Topic
from benchmarks.loads.frames import request_frame
from benchmarks.report.histogram import Histogram
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.protocol.schema.registry import api
from ottla.protocol.uuid import to_text
from tests.support.apache_kafka import pinned_to

PATIENCE_S: Final = 60.0
SHARE_FETCH_VERSION: Final = 1
ACCEPT: Final = 1
MOST_RECORDS: Final = 500
"""Of a fetch, and of each of its acquired ranges; `max.poll.records` of clients."""
_MAX_BYTES: Final = 50 << 20
_WAIT_MS: Final = 500
_FINAL_EPOCH: Final = -1
_RECEIVED_AT_ONCE: Final = 4 << 20
_LENGTH: Final = struct.Struct(">i")

Range = tuple[int, int]
"""First and last offset."""


@dataclass(frozen=True, slots=True)
class Group:
    """A share group that reads a topic of one broker. `is_each_alone`: every record has an acknowledgement of its own."""

    port: int
    group_id: str
    topic: Topic
    is_each_alone: bool = False


class Member:
    """A member of a group. `acquired` has, by partition, what it has not acknowledged."""

    def __init__(self, group: Group, partitions: Sequence[int], max_records: int = MOST_RECORDS) -> None:
        self._group = group
        self._partitions = partitions
        self._max_records = max_records
        self.socket = socket.create_connection(("127.0.0.1", group.port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.acquired: dict[int, list[Range]] = {}
        self.sent = 0
        self.received = 0
        self._id = to_text(uuid4().bytes)
        self._epoch = 0
        self._buffer = bytearray()

    def send(self, *, is_last: bool = False, wait_ms: int = _WAIT_MS) -> None:
        """Acknowledge the records of the last answer, and ask for more; the last request ends the session."""
        acquired, self.acquired = self.acquired, {}
        named = acquired if self._epoch else {partition: [] for partition in self._partitions}
        partitions = [
            FetchPartition(partition_index=partition, acknowledgement_batches=self._accepted(ranges)) for partition, ranges in named.items()
        ]
        request = ShareFetchRequest(
            group_id=self._group.group_id,
            member_id=self._id,
            share_session_epoch=_FINAL_EPOCH if is_last else self._epoch,
            max_wait_ms=0 if is_last else wait_ms,
            min_bytes=0 if is_last else 1,
            max_bytes=0 if is_last else _MAX_BYTES,
            max_records=0 if is_last else self._max_records,
            batch_size=MOST_RECORDS,
            topics=[FetchTopic(topic_id=self._group.topic.topic_id, partitions=partitions)] if partitions else [],
        )
        frame = request_frame(ApiKey.SHARE_FETCH, request, SHARE_FETCH_VERSION)
        self._epoch += 1
        self.sent += len(frame)
        self.socket.sendall(frame)

    def _accepted(self, ranges: Sequence[Range]) -> list[AcknowledgementBatch]:
        if self._group.is_each_alone:
            ranges = [(offset, offset) for first, last in ranges for offset in range(first, last + 1)]
        return [AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT]) for first, last in ranges]

    def take(self) -> int | None:
        """The number of records that the member has now, if the answer is complete. Raises LoadFailedError."""
        more = self.socket.recv(_RECEIVED_AT_ONCE)
        if not more:
            raise LoadFailedError("the broker closed the connection of a member of a share group")
        self._buffer += more
        if len(self._buffer) < _LENGTH.size or len(self._buffer) < _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]:
            return None
        answer, self._buffer = bytes(self._buffer), bytearray()
        self.received += len(answer)
        version = api(ApiKey.SHARE_FETCH).response_header_version(SHARE_FETCH_VERSION)
        _, body = ResponseHeader.decode(answer, version, _LENGTH.size)
        response, _ = ShareFetchResponse.decode(answer, SHARE_FETCH_VERSION, body)
        _check(response.error_code)
        for topic in response.responses:
            for found in topic.partitions:
                _check(found.error_code)
                _check(found.acknowledge_error_code)
                if found.acquired_records:
                    self.acquired[found.partition_index] = [(each.first_offset, each.last_offset) for each in found.acquired_records]
        return sum(last - first + 1 for ranges in self.acquired.values() for first, last in ranges)

    def ask(self, *, is_last: bool = False, wait_ms: int = _WAIT_MS) -> int:
        """Send, and wait for the answer, as `take`."""
        self.send(is_last=is_last, wait_ms=wait_ms)
        while (acquired := self.take()) is None:
            pass
        return acquired

    def close(self) -> None:
        self.socket.close()


def _check(code: int) -> None:
    if code:
        raise LoadFailedError(f"a member of a share group was answered with {ErrorCode.of(code).name}")


@dataclass(slots=True)
class _Counts:
    acquired: int = 0
    delivered: dict[int, int] = field(default_factory=dict)
    """When each offset was delivered first, ns."""


def accept_all(
    group: Group, members: int, records: int, *, pin_cpu: int | None = None, probe: Callable[[], float] = lambda: 0.0
) -> Measured:
    """Members acquire this many records of partition 0, and accept them with their next fetches. A response stands for a record.

    At the end, only records in flight are not accepted. Confirmations are not counted: they come with the answer to the next fetch, which
    waits behind those of the other members. Raises LoadFailedError.
    """
    counts = _Counts()
    with _playing(group, members, pin_cpu) as (played, poll):
        cpu_s, own_s, began = probe(), time.thread_time(), time.monotonic()
        for member in played.values():
            member.send()
        while counts.acquired < records:
            _turn(played, poll, counts)
        window_s, own_s, cpu_s = time.monotonic() - began, time.thread_time() - own_s, probe() - cpu_s
    sent, received = (sum(sizes) for sizes in zip(*((each.sent, each.received) for each in played.values()), strict=True))
    return Measured(counts.acquired, counts.acquired, window_s, sent, received, Histogram(), own_s, cpu_s)


def deliver_new(
    group: Group,
    members: int,
    produce: bytes,
    rate: float,
    duration_s: float,
    *,
    pin_cpu: int | None = None,
    probe: Callable[[], float] = lambda: 0.0,
) -> Measured:
    """A producer sends `produce`, which has one record for partition 0, at a fixed rate; members wait for the records and accept them.

    The latencies begin when a request is meant to be sent, and end when a member has the record. The partition is empty before.
    Raises LoadFailedError.
    """
    counts, due_ns = _Counts(), []
    with _playing(group, members, pin_cpu) as (played, poll), closing(_Producer(group.port, produce)) as producer:
        poll.register(producer.socket.fileno(), select.EPOLLIN)
        for member in played.values():
            member.send()
        cpu_s, own_s, began_ns = probe(), time.thread_time(), time.monotonic_ns()
        for number in count():
            at_ns = began_ns + int(number * 1e9 / rate)
            if at_ns > began_ns + duration_s * 1e9:
                break
            while (left_ns := at_ns - time.monotonic_ns()) > 0:
                _turn(played, poll, counts, left_ns / 1e9, producer)
            due_ns.append(at_ns)
            producer.send()
        while counts.acquired < len(due_ns):
            _turn(played, poll, counts, producer=producer)
        window_s, own_s, cpu_s = (time.monotonic_ns() - began_ns) / 1e9, time.thread_time() - own_s, probe() - cpu_s
    latencies = Histogram()
    for offset, at_ns in enumerate(due_ns):
        latencies.record(counts.delivered[offset] - at_ns)
    return Measured(len(due_ns), len(due_ns), window_s, 0, 0, latencies, own_s, cpu_s)


class _Producer:
    """A connection on which any number of Produce requests are in flight."""

    def __init__(self, port: int, frame: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frame = frame

    def send(self) -> None:
        self.socket.sendall(self._frame)

    def close(self) -> None:
        self.socket.close()


@contextmanager
def _playing(group: Group, members: int, pin_cpu: int | None) -> Iterator[tuple[dict[int, Member], select.epoll]]:
    """Members with connections by their descriptors, which `poll` watches. Their sessions end afterwards."""
    with pinned_to(pin_cpu), without_collections(), closing(select.epoll()) as poll:
        played: dict[int, Member] = {}
        try:
            for _ in range(members):
                member = Member(group, [0])
                played[member.socket.fileno()] = member
                poll.register(member.socket.fileno(), select.EPOLLIN)
            yield played, poll
        finally:
            for member in played.values():
                member.close()


def _turn(
    played: Mapping[int, Member], poll: select.epoll, counts: _Counts, seconds: float = PATIENCE_S, producer: _Producer | None = None
) -> None:
    ready = poll.poll(seconds)
    if not ready and seconds >= PATIENCE_S:
        raise LoadFailedError(f"no answer to any member of a share group within {PATIENCE_S:.0f} s")
    now_ns = time.monotonic_ns()
    for descriptor, _ in ready:
        member = played.get(descriptor)
        if member is None:
            assert producer is not None
            producer.socket.recv(_RECEIVED_AT_ONCE)  # only how soon the records arrive matters
        elif (acquired := member.take()) is not None:
            counts.acquired += acquired
            if producer is not None:
                for first, last in member.acquired.get(0, ()):
                    for offset in range(first, last + 1):
                        counts.delivered.setdefault(offset, now_ns)
            member.send()
