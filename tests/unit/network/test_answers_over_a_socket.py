"""A connection with a socket of its own: whatever its answers are made of, they arrive whole and in order, however slowly they leave."""

from __future__ import annotations

import random
import socket
import struct
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.network.connection import Connection
from ottla.broker.network.gather import INLINE_BYTES, PAGE_BYTES
from ottla.broker.network.request_channel import Answer
from ottla.broker.security.client import Client
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.segment.file_region import FileRegion
from tests.support.network import Bench, FakeTransport, Turns, framed, unframed
from tests.unit.network.test_sending_at_once import Loop

DATA = random.Random(4).randbytes(1 << 20)
METADATA, FETCH = 3, 1
FETCHES = st.tuples(
    st.just(FETCH),
    st.sampled_from([0, 77, PAGE_BYTES - 1, PAGE_BYTES, 3 * PAGE_BYTES + 5]),
    st.sampled_from([1, INLINE_BYTES, INLINE_BYTES + 1, 40_000, 65_536, 70_000, 300_000]),
)
REQUESTS = st.one_of(FETCHES, st.tuples(st.just(METADATA), st.just(0), st.integers(0, 3000)))
"""(API key, position, length)."""


class SocketTurns(Loop, Turns):
    """A hand-turned loop with writers and threads."""

    def __init__(self) -> None:
        Loop.__init__(self)
        Turns.__init__(self)


class SocketTransport(FakeTransport):
    """Writes to a socket what it takes."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(takes=0)
        self.sock = sock

    def _drain(self) -> None:
        while self.buffered:
            try:
                del self.buffered[: self.sock.send(self.buffered)]
            except BlockingIOError:
                return

    def retry(self) -> None:
        """The socket may have room again."""
        had = bool(self.buffered)
        self._drain()
        if had and not self.buffered and self.protocol is not None:
            self.protocol.resume_writing()


def a_request(kind: int, position: int, length: int) -> bytes:
    return struct.pack(">hhiii", kind, 17, 5, position, length)


@settings(deadline=None, max_examples=120)
@given(
    st.lists(st.lists(REQUESTS, min_size=1, max_size=6), min_size=1, max_size=5),
    st.sampled_from([5_000, 60_000, 2_000_000]),
)
def test_answers_arrive_whole_and_in_order(reads: list[list[tuple[int, int, int]]], room: int) -> None:
    ours, client = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
    ours.setblocking(False)
    client.setblocking(False)
    with tempfile.NamedTemporaryFile() as stored:
        stored.write(DATA)
        stored.flush()
        file = RealFileSystem().open(stored.name, read_only=True)

        def answer(frame: memoryview, _: object) -> Answer:
            kind, _, _, position, length = struct.unpack(">hhiii", frame)
            if kind == METADATA:
                return b"m" * length
            return [b"<", FileRegion(file, position, length, True), b">"]

        turns = SocketTurns()
        bench = Bench(answer, turns=turns)
        connection = Connection(bench.processor, Client("test", "host", 2, "PLAINTEXT"), ours)
        transport = SocketTransport(ours)
        transport.protocol = connection
        connection.connection_made(transport)
        got = bytearray()

        def take() -> bool:
            """What has come and what can be done now; whether there was anything."""
            moved = turns.turn()
            while turns.pulls:
                turns.pulls.pop(0)()
                moved = True
            try:
                while data := client.recv(1 << 20):
                    got.extend(data)
                    moved = True
            except BlockingIOError:
                pass
            if moved:
                transport.retry()
                turns.there_is_room()
            return moved

        for read in reads:
            received = framed(*(a_request(*each) for each in read))
            while not transport.reading:
                assert take()
            buffer = connection.get_buffer(-1)
            buffer[: len(received)] = received
            connection.buffer_updated(len(received))
        while take():
            pass
        asked = [each for read in reads for each in read]
        assert unframed(bytes(got)) == [
            b"m" * length if kind == METADATA else b"<" + DATA[position : position + length] + b">" for kind, position, length in asked
        ]
        assert not transport.closing
        connection.connection_lost(None)
    ours.close()
    client.close()
