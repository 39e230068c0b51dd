"""Produce requests that come together are answered as they are one by one, whatever is among them."""

from __future__ import annotations

import errno
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.network.limits import MAX_APPENDED
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.support.batches import a_batch, with_bytes
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.golden_replay import decode, request_frame
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.network import Bench, Client
from tests.support.replicas import TOPIC, state
from tests.unit.broker.test_produce_handler import alone, followed

VERSION = 11


class Wire:
    """A connection to a dispatcher."""

    def __init__(self, handlers: HandlerBench) -> None:
        self.handlers = handlers
        self.bench = Bench(handlers.dispatcher.handle)
        self.client: Client = self.bench.connect()

    def send(self, *frames: bytes) -> list[tuple[int, bytes]]:
        """(correlation id, the rest) of the answers so far."""
        self.client.send_all(b"".join(frames))
        self.bench.turns.run()
        return [(struct.unpack_from(">i", answer)[0], answer[4:]) for answer in self.client.answers]


def a_produce(
    correlation_id: int,
    records: bytes | bytearray | None = None,
    *,
    partition: int = 0,
    acks: int = -1,
    version: int = VERSION,
    client_id: str = "test",
    behind: bytes = b"",
) -> bytes:
    """A frame with its length; `behind` follows the body."""
    data = [PartitionProduceData(index=partition, records=bytes(a_batch() if records is None else records))]
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])
    frame = bytearray(request_frame(request, ApiKey.PRODUCE, version, client_id) + behind)
    struct.pack_into(">i", frame, 0, len(frame) - 4)
    struct.pack_into(">i", frame, 8, correlation_id)
    return bytes(frame)


def warm(wire: Wire) -> None:
    """A first request makes the route and its head known, and begins the segment."""
    wire.send(a_produce(0))
    wire.client.transport.sent.clear()


def offsets(answers: list[tuple[int, bytes]], version: int = VERSION) -> list[tuple[int, int, int]]:
    """(correlation id, error code, base offset) of each."""
    found = []
    for correlation_id, rest in answers:
        response = decode(struct.pack(">i", correlation_id) + rest, ApiKey.PRODUCE, version)
        assert isinstance(response, ProduceResponse)
        (partition,) = response.responses[0].partition_responses
        found.append((correlation_id, partition.error_code, partition.base_offset))
    return found


@on_a_loop
async def test_requests_that_come_together_are_appended_and_answered_in_order() -> None:
    wire = Wire(alone())
    warm(wire)
    assert offsets(wire.send(*(a_produce(number, a_batch(2)) for number in range(1, 6)))) == [
        (number, 0, 2 * number - 1) for number in range(1, 6)
    ]
    partition = wire.handlers.replicas.partition
    assert partition.log.log_end_offset == partition.log.high_watermark == 11
    assert (partition.stats.produce_requests, partition.stats.messages_in) == (6, 11)
    assert wire.handlers.dispatcher.routes[VERSION].requests == 6


@on_a_loop
async def test_acks_0_is_answered_by_nothing() -> None:
    wire = Wire(alone())
    wire.send(a_produce(0, acks=0), a_produce(1, acks=0))
    assert wire.send(*(a_produce(number, acks=0) for number in range(2, 5))) == []
    assert wire.handlers.replicas.partition.log.log_end_offset == 5


@on_a_loop
async def test_acks_all_answers_each_when_replicas_have_its_records() -> None:
    wire = Wire(followed())
    wire.send(a_produce(0))
    assert wire.send(a_produce(1), a_produce(2), a_produce(3)) == []
    for follower in (1, 2):
        wire.handlers.replicas.follow(follower, 3)
    wire.bench.turns.run()
    assert offsets(wire.send()) == [(0, 0, 0), (1, 0, 1), (2, 0, 2)]
    for follower in (1, 2):
        wire.handlers.replicas.follow(follower, 4)
    wire.bench.turns.run()
    assert offsets(wire.send())[3:] == [(3, 0, 3)]


@on_a_loop
async def test_those_that_wait_for_replicas_are_bounded() -> None:
    wire = Wire(followed())
    wire.send(a_produce(0))
    sent = [a_produce(number) for number in range(1, 2 * MAX_APPENDED)]
    wire.client.send(b"".join(sent))
    wire.bench.turns.run()
    assert wire.handlers.replicas.partition.log.log_end_offset == MAX_APPENDED


@on_a_loop
async def test_one_that_is_refused_is_told_and_the_others_are_appended() -> None:
    wire = Wire(alone())
    warm(wire)
    damaged = bytearray(a_batch(3)[:-1]) + b"\x7f"
    answers = offsets(wire.send(a_produce(1), a_produce(2, damaged), a_produce(3)))
    assert answers == [(1, 0, 1), (2, ErrorCode.CORRUPT_MESSAGE, -1), (3, 0, 2)]


@on_a_loop
async def test_a_disk_that_fails_refuses_all_of_them() -> None:
    disk = FaultyFileSystem(MemoryFileSystem())
    handlers = HandlerBench(disk)
    handlers.replicas.say(state(isr=[0], replicas=[0]))
    handlers.know(p0=0)
    wire = Wire(handlers)
    warm(wire)
    disk.error_number = errno.ENOSPC
    disk.fails_if = lambda name, path: name == "pwrite" and path.endswith(".log")
    answers = offsets(wire.send(a_produce(1), a_produce(2)))
    assert answers == [(1, ErrorCode.KAFKA_STORAGE_ERROR, -1), (2, ErrorCode.KAFKA_STORAGE_ERROR, -1)]


@on_a_loop
async def test_a_follower_refuses_all_of_them() -> None:
    wire = Wire(alone())
    warm(wire)
    wire.handlers.replicas.say(state(leader=1, epoch=1, isr=[1], replicas=[0, 1]))
    answers = offsets(wire.send(a_produce(1), a_produce(2)))
    assert answers == [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), (2, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


BATCHES = [
    bytes(a_batch(1)),
    bytes(a_batch(5, "lz4")),
    bytes(a_batch(200)),
    *(bytes(a_batch(2, producer_id=7, base_sequence=sequence)) for sequence in (0, 2, 4)),
    bytes(a_batch(1)[:-1]) + b"\x7f",
    bytes(a_batch(1) + a_batch(1)),
    bytes(with_bytes(a_batch(5), 21, b"\0\x05")),
    b"",
    b"\0" * 70,
]


@st.composite
def frames(draw: st.DrawFn) -> list[bytes]:
    """Requests as a client may send them behind one another, mostly alike."""
    found: list[bytes] = []
    for number in range(draw(st.integers(2, 9))):
        kind = draw(st.integers(0, 19))
        if kind == 0:
            frame = bytearray(request_frame(MetadataRequest(topics=[]), ApiKey.METADATA, 5))
            struct.pack_into(">i", frame, 8, number)
            found.append(bytes(frame))
            continue
        found.append(
            a_produce(
                number,
                draw(st.sampled_from(BATCHES[:1] * 10 + BATCHES)),
                partition=1 if kind == 1 else 0,
                acks=1 if kind == 2 else -1,
                version=draw(st.sampled_from([VERSION] * 6 + [9, 8])),
                client_id="another" if kind == 3 else "test",
                behind=b"more" if kind == 4 else b"",
            )
        )
    return found


@settings(deadline=None, max_examples=150)
@given(sent=frames(), pieces=st.lists(st.integers(1, 400), max_size=6))
def test_together_and_one_by_one_are_answered_alike(sent: list[bytes], pieces: list[int]) -> None:
    @on_a_loop
    async def run() -> None:
        answers = []
        logs = []
        for at_once in (True, False):
            wire = Wire(alone())
            warm(wire)
            data = b"".join(sent)
            if not at_once:
                for frame in sent:
                    wire.send(frame)
            else:
                for size in pieces:
                    wire.send(data[:size])
                    data = data[size:]
                wire.send(data)
            answers.append(wire.send())
            logs.append([partition.log for partition in wire.handlers.replicas.manager])
        assert answers[0] == answers[1]
        for one, other in zip(*logs, strict=True):
            assert one.log_end_offset == other.log_end_offset
            assert one.segments.active.file.pread(1 << 20, 0) == other.segments.active.file.pread(1 << 20, 0)

    run()
