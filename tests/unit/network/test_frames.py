"""Frames out of bytes: whatever the pieces they arrive in, the handler sees the same frames."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.network.acceptor import AcceptedConnection
from ottla.broker.network.connection import Connection
from ottla.broker.network.frame_reader import FIRST_ALLOCATION
from ottla.broker.network.limits import FIRST_BYTES, FULL_WINDOW_BYTES, RECEIVE_BUFFER_BYTES, NetworkLimits
from ottla.broker.network.request_channel import Pending
from ottla.broker.security.client import Client
from tests.support.network import Bench, FakeTransport, framed, other, produce

MAX_BYTES = NetworkLimits().socket_request_max_bytes


def numbered(size: int, number: int = 1) -> bytes:
    return bytes([number % 250 + 1]) * size


def test_one_frame_in_one_read_is_handled_and_answered() -> None:
    bench = Bench()
    client = bench.connect()
    client.send_all(framed(b"hello"))
    assert client.answers == [b"hello"]


def test_frames_of_one_read_are_answered_by_one_write() -> None:
    bench = Bench()
    client = bench.connect()
    client.send_all(framed(b"one", b"two", b"three"))
    assert client.answers == [b"one", b"two", b"three"]
    assert client.transport.writes == 1


def test_a_frame_may_come_byte_by_byte() -> None:
    bench = Bench()
    client = bench.connect()
    for byte in framed(b"slow", b"slower"):
        client.send(bytes([byte]))
    assert bench.handled == [b"slow", b"slower"]


def test_a_read_that_yields_nothing_loses_nothing() -> None:
    bench = Bench()
    client = bench.connect()
    data = framed(b"interrupted")
    client.send(data[:6])
    bench.processor.view[:6] = b"others"  # read meanwhile, by another connection
    before = bytes(bench.processor.view)
    client.connection.get_buffer(-1)  # and then the socket had nothing
    client.connection.get_buffer(-1)
    assert bench.processor.view == before, "nothing was copied: thousands of connections may end in one turn"
    client.connection.get_buffer(-1)[:2] = data[6:8]
    client.connection.buffer_updated(2)
    assert bench.processor.view[:6] == b"others", "the longer part was not copied"
    client.send(data[8:])
    assert bench.handled == [b"interrupted"]


def test_two_connections_share_the_buffer_without_mixing_their_halves() -> None:
    bench = Bench()
    first, second = bench.connect(), bench.connect()
    one, two = framed(numbered(1000, 1)), framed(numbered(2000, 2))
    first.send(one[:600])
    second.send(two[:1500])
    first.send(one[600:])
    second.send(two[1500:])
    assert bench.handled == [numbered(1000, 1), numbered(2000, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "size",
    [
        RECEIVE_BUFFER_BYTES - 5,
        RECEIVE_BUFFER_BYTES - 4,
        RECEIVE_BUFFER_BYTES - 3,
        RECEIVE_BUFFER_BYTES,
        1_048_576 + 90,
        FIRST_ALLOCATION - 4,
        FIRST_ALLOCATION - 3,
        2 * FIRST_ALLOCATION,
        5_000_001,
    ],
)
@pytest.mark.parametrize("before", [0, 1, 70_000])
def test_a_frame_around_and_beyond_the_buffer_arrives_whole(size: int, before: int) -> None:
    seen: list[tuple[int, bytes, bytes]] = []

    def handler(frame: memoryview, _: object) -> bytes:
        seen.append((len(frame), bytes(frame[:2]), bytes(frame[-2:])))
        return b"ok"

    bench = Bench(handler)
    client = bench.connect()
    client.send(framed(b"x" * before) if before else b"")
    body = b"ab" + bytes(size - 4) + b"yz"
    client.send_all(framed(body, b"next"))
    assert seen[-2:] == [(size, b"ab", b"yz"), (4, b"ne", b"xt")]
    assert bench.handled[-2] == body


def test_the_frame_is_writable_so_that_a_batch_can_be_stamped_in_place() -> None:
    def handler(frame: memoryview, _: object) -> bytes:
        frame[0:1] = b"J"
        return bytes(frame)

    client = Bench(handler).connect()
    client.send_all(framed(b"jelly", b"J" * 600_000))
    assert client.answers[0] == b"Jelly"


def test_a_length_that_lies_costs_only_what_was_sent() -> None:
    client = Bench().connect()
    client.send(struct.pack(">i", MAX_BYTES) + b"\x00\x12")
    assert client.connection.kept_bytes < 100
    client.send(bytes(FIRST_BYTES))
    assert client.connection.kept_bytes <= FIRST_ALLOCATION
    client.send(bytes(FIRST_ALLOCATION - FIRST_BYTES - 10))
    assert client.connection.kept_bytes <= FIRST_ALLOCATION


def test_a_connection_between_frames_keeps_no_memory() -> None:
    client = Bench().connect()
    client.send_all(framed(b"x" * 3_000_000, b"y" * 100))
    assert client.connection.kept_bytes == 0


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (bytes.fromhex("00000000"), "an empty request"),
        (bytes.fromhex("ffffffff"), "-1 bytes"),
        (bytes.fromhex("7fffffff00120000"), "socket.request.max.bytes=104857600"),
        (struct.pack(">i", MAX_BYTES + 1), "socket.request.max.bytes=104857600"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "looks like HTTP"),
        (bytes.fromhex("16030100a5010000a10303"), "looks like TLS"),
    ],
)
def test_a_length_that_no_request_has_closes_with_one_line_that_says_why(data: bytes, says: str) -> None:
    bench = Bench()
    client = bench.connect()
    client.send(framed(b"good") + data)
    assert client.answers == [b"good"]
    assert client.transport.aborted
    assert len(bench.lines) == 1
    assert says in bench.lines[0]
    assert "local:1-host:2-0" in bench.lines[0]


def test_the_limit_of_a_client_that_has_not_authenticated_is_named() -> None:
    bench = Bench()
    client = bench.connect()
    client.connection.exchange_handler(client.connection.handler, 1000)
    client.send(struct.pack(">i", 1001))
    assert client.transport.aborted
    assert "a request of 1001 bytes is larger than sasl.server.max.receive.size=1000; closing the connection" in bench.lines[0]


def test_a_client_whose_authentication_cannot_begin_is_not_served() -> None:
    def begin(connection: Connection) -> None:
        raise RuntimeError("planted")

    bench = Bench()
    connection = AcceptedConnection(bench.processor, Client("local:1-host:2-0", "host", 2, "SASL"), None, begin)
    transport = FakeTransport()
    with pytest.raises(RuntimeError, match="planted"):
        connection.connection_made(transport)
    data = framed(other())
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))
    assert (bench.handled, transport.aborted) == ([], True)


def test_a_bad_length_behind_a_request_that_waits_closes_after_its_answer() -> None:
    pending = Pending()
    bench = Bench(lambda frame, connection: pending)
    client = bench.connect()
    client.send(framed(other()) + b"\xff\xff\xff\xff")
    assert not client.transport.closing
    pending.complete(b"answer")
    bench.turns.run()
    assert client.answers == [b"answer"]
    assert client.transport.aborted


def test_one_host_that_sends_garbage_all_the_time_does_not_fill_the_log() -> None:
    bench = Bench()
    for _ in range(1000):
        bench.connect().send(b"\xff\xff\xff\xff")
    assert len(bench.lines) < 10
    bench.now_ns += 61 * 10**9
    bench.connect().send(b"\xff\xff\xff\xff")
    assert any("995 more" in line for line in bench.lines)


def test_a_handler_that_raises_closes_that_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    def handler(frame: memoryview, _: object) -> bytes:
        if frame[0] == 66:
            raise RuntimeError("a bug")
        return bytes(frame)

    bench = Bench(handler)
    bad, good = bench.connect(), bench.connect()
    bad.send(framed(b"B", b"never"))
    good.send_all(framed(b"A"))
    assert bad.transport.aborted
    assert bench.handled == [b"B", b"A"]
    assert good.answers == [b"A"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_while_the_request_channel_is_full_only_a_small_window_is_read() -> None:
    bench = Bench(lambda frame, connection: Pending(occupies_slot=True), slots=1, limits=NetworkLimits(queued_max_requests=1))
    bench.connect().send(framed(other()))  # holds the slot
    bench.connect().send(framed(other()))  # fills the queue
    assert bench.channel.full
    client = bench.connect()
    assert client.send(framed(*[other(bytes(50))] * 1000)) == FULL_WINDOW_BYTES
    assert not client.transport.reading


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_chunking_of_a_stream_yields_the_same_frames_and_answers(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.one_of(st.integers(1, 40), st.integers(1, 20_000), st.sampled_from([262_140, 300_000])), max_size=12))
    bodies = [numbered(size, i) for i, size in enumerate(sizes)]
    stream = framed(*bodies)
    bench = Bench()
    client = bench.connect()
    position = 0
    while position < len(stream):
        chunk = data.draw(st.one_of(st.integers(1, 9), st.integers(1, 5000), st.integers(1, 400_000)))
        client.send_all(stream[position : position + chunk])
        position += chunk
    assert bench.handled == bodies
    assert client.answers == bodies


class Script:
    """A handler that answers as it was told: at once, later, later as an appended Produce, or from a slot."""

    def __init__(self, kinds: list[str]) -> None:
        self.kinds = kinds
        self.pendings: list[tuple[Pending, bytes]] = []
        self.count = 0

    def __call__(self, frame: memoryview, _: object) -> bytes | Pending:
        kind = self.kinds[self.count % len(self.kinds)] if self.kinds else "now"
        self.count += 1
        answer = bytes(frame)
        if kind == "now":
            return answer
        pending = Pending(appended=kind == "appended" and frame[1] == 0, occupies_slot=kind == "slot")
        self.pendings.append((pending, answer))
        if kind == "done":
            pending.complete(answer)
        return pending


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_answers_keep_the_order_of_requests_whatever_completes_first(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 25))
    kinds = data.draw(st.lists(st.sampled_from(["now", "later", "appended", "slot", "done"]), min_size=1, max_size=8))
    script = Script(kinds)
    bench = Bench(script, slots=data.draw(st.integers(1, 2)), limits=NetworkLimits(queued_max_requests=2))
    clients = [bench.connect(takes=0 if data.draw(st.booleans()) else None) for _ in range(2)]
    streams = []
    for _ in clients:
        bodies = [(produce if data.draw(st.booleans()) else other)(b"%d" % i) for i in range(count)]
        streams.append((bodies, framed(*bodies)))
    positions = [0, 0]
    for _ in range(2000):
        for i, client in enumerate(clients):
            chunk = data.draw(st.integers(1, 60)) if positions[i] < len(streams[i][1]) else 0
            positions[i] += client.send(streams[i][1][positions[i] : positions[i] + chunk])
            if client.transport.takes is not None:
                client.transport.take(40)
        if script.pendings:
            pending, answer = script.pendings.pop(data.draw(st.integers(0, len(script.pendings) - 1)))
            pending.complete(answer)
        bench.turns.run()
        if all(not c.transport.buffered and len(c.transport.sent) == len(s[1]) for c, s in zip(clients, streams, strict=True)):
            break
    for client, (bodies, _) in zip(clients, streams, strict=True):
        assert client.answers == bodies
        assert client.transport.reading
    assert bench.channel.slots_in_use == 0
    assert bench.channel.queue_size == 0


def test_large_frames_that_come_in_have_no_more_than_queued_max_request_bytes_together() -> None:
    bench = Bench(limits=NetworkLimits(queued_max_request_bytes=1_000_000))
    frame = framed(numbered(600_000))
    clients = [bench.connect() for _ in range(4)]
    taken = [client.send(frame[:-1]) for client in clients]
    assert taken[0] == len(frame) - 1
    assert FIRST_BYTES <= taken[1] <= RECEIVE_BUFFER_BYTES
    assert taken[2] == taken[3] == FULL_WINDOW_BYTES
    assert bench.channel.frame_memory.taken == len(frame)
    small = bench.connect()
    small.send_all(framed(b"small"))
    assert small.answers == [b"small"]

    clients[0].send_all(frame[-1:])
    clients[1].connection.connection_lost(None)  # it waited for room, and leaves
    bench.turns.run()
    clients[2].send(frame[taken[2] : -1])
    assert clients[3].send(frame[taken[3] :]) == 0
    clients[2].connection.connection_lost(None)  # it had room, and leaves
    bench.turns.run()
    clients[3].send_all(frame[taken[3] :])
    assert clients[3].answers == clients[0].answers == [numbered(600_000)]
    assert bench.channel.frame_memory.taken == 0


def test_a_frame_larger_than_all_room_comes_in_alone_and_one_between_brokers_needs_none() -> None:
    bench = Bench(limits=NetworkLimits(queued_max_request_bytes=400_000))
    first, second, broker = bench.connect(), bench.connect(), bench.connect()
    frame = framed(numbered(500_000))
    first.send(frame[:-1])
    sent = second.send(frame)
    assert sent < len(frame)
    urgent = struct.pack(">h", 4) + bytes(500_000)  # LeaderAndIsr
    broker.send_all(framed(urgent))
    assert bench.handled == [urgent]
    first.send_all(frame[-1:])
    second.send_all(frame[sent:])
    assert bench.handled == [urgent, numbered(500_000), numbered(500_000)]
