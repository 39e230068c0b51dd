"""Answers that clients do not read: all connections together hold a bounded number of their bytes, and who reads is not closed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ottla.broker.network.frame_memory import HUGE_BYTES
from ottla.broker.network.limits import FREE_UNREAD_BYTES, LATE_CHECK_SECONDS, PATIENCE_NS, UNREAD_DIVISOR, NetworkLimits
from ottla.broker.network.request_channel import Answer, Parts, Pending
from ottla.broker.network.sendfile import CHUNK_BYTES, TAIL_BYTES
from ottla.pauses import begin
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.segment.file_region import FileRegion
from tests.support.broker_process import eventually
from tests.support.network import Bench, Client, FakeTransport, framed, other, produce
from tests.unit.network.test_file_sender import TurnsWithThreads

MiB = 1024 * 1024
LIMIT = HUGE_BYTES // UNREAD_DIVISOR
CHECK_NS = int(LATE_CHECK_SECONDS * 1e9)


class World:
    """A bench whose answers have the size that the request names, in bytes with their length."""

    def __init__(self, turns: TurnsWithThreads | None = None) -> None:
        self.bench = Bench(self.answer, turns=turns, limits=NetworkLimits(large_requests_max_bytes=HUGE_BYTES))
        self.waiting: list[Pending] = []
        self.file: FileRegion | None = None

    def answer(self, frame: memoryview, _: object) -> Answer:
        what = bytes(frame[2:])
        if what == b"append":
            self.waiting.append(Pending(appended=True))
            return self.waiting[-1]
        body = bytes(int(what) - 4)
        if self.file is None:
            return body
        parts: Parts = [b"<", self.file, body]
        return parts

    @property
    def held(self) -> int:
        """The bytes that count."""
        return self.bench.channel.unread.bytes

    def silent(self, *sizes: int) -> list[Client]:
        """Connections that ask for answers of these sizes, and read nothing."""
        clients = [self.bench.connect(takes=0) for _ in sizes]
        for client, size in zip(clients, sizes, strict=True):
            client.send(framed(other(b"%d" % size)))
        self.bench.turns.run()
        return clients

    def check(self) -> None:
        begin(self.bench.channel.unread.end_stalled())

    def pass_patience(self) -> None:
        """Checks as often as a broker does, for longer than the patience."""
        for _ in range(PATIENCE_NS // CHECK_NS + 2):
            self.check()
            self.bench.now_ns += CHECK_NS
        self.check()


def closed(clients: list[Client]) -> list[bool]:
    return [client.transport.closing for client in clients]


def test_the_largest_are_closed_until_the_others_hold_no_more_than_they_may() -> None:
    world = World()
    clients = world.silent(MiB, 2 * MiB, MiB, MiB, 3 * MiB, FREE_UNREAD_BYTES)
    assert world.held == 8 * MiB + FREE_UNREAD_BYTES
    world.check()
    world.bench.now_ns += PATIENCE_NS
    world.check()
    assert not any(closed(clients))
    world.bench.now_ns += 1
    world.check()
    assert closed(clients) == [False, True, False, False, True, False]
    assert world.held == 3 * MiB + FREE_UNREAD_BYTES
    assert len(world.bench.lines) == 2
    assert world.bench.lines[0].endswith(
        "the client does not read its answers, and they take memory that others need; closing the connection"
    )


def test_nobody_is_closed_while_all_hold_no_more_than_they_may() -> None:
    world = World()
    clients = world.silent(*[MiB] * (LIMIT // MiB))
    assert world.held == LIMIT
    world.pass_patience()
    assert not any(closed(clients))


def test_who_was_silent_long_enough_is_closed_as_soon_as_there_is_too_much() -> None:
    world = World()
    clients = world.silent(*[MiB] * (LIMIT // MiB))
    world.pass_patience()
    late = world.silent(MiB)
    world.check()
    assert closed(clients + late).count(True) == 1
    assert closed(late) == [False]


def test_who_reads_is_not_closed_however_slowly() -> None:
    world = World()
    slow, silent = world.silent(2 * LIMIT, MiB)
    for _ in range(20):
        world.check()
        world.bench.now_ns += PATIENCE_NS
        slow.transport.take(1)
    assert closed([slow, silent]) == [False, True]


def test_who_holds_little_is_not_closed_however_much_others_do() -> None:
    """A consumer that works on its records reads nothing for minutes."""
    world = World()
    clients = world.silent(*[FREE_UNREAD_BYTES] * (2 * LIMIT // FREE_UNREAD_BYTES))
    assert world.held == 2 * LIMIT
    world.pass_patience()
    assert not any(closed(clients))


def test_what_was_read_or_lost_or_closed_does_not_count() -> None:
    world = World()
    reader, slow, lost, broken = world.silent(MiB, 2 * MiB, MiB, MiB)
    reader.transport.take(MiB)
    lost.connection.connection_lost(None)
    broken.connection.abort()
    slow.transport.take(MiB // 2)
    assert world.held == 2 * MiB  # it is known at the next check
    world.silent(MiB)
    world.check()
    assert world.held == 2 * MiB + MiB // 2
    slow.transport.take(2 * MiB)
    assert world.held == MiB


def test_answers_that_wait_behind_unread_ones_count() -> None:
    world = World()
    client = world.bench.connect(takes=0)
    client.send(framed(produce(b"append"), produce(b"append"), produce(b"%d" % MiB)))
    assert world.held == 0
    first, second = world.waiting
    first.complete(bytes(MiB))
    world.bench.turns.run()
    assert world.held == 4 + MiB + MiB - 4
    second.complete(bytes(MiB))
    world.bench.turns.run()
    assert world.held == 3 * MiB + 4 + 4
    client.transport.take(4 * MiB)
    assert world.held == 0
    assert [len(answer) for answer in client.answers] == [MiB, MiB, MiB - 4]


def region(path: Path) -> FileRegion:
    path.write_bytes(bytes(4 * MiB))
    return FileRegion(RealFileSystem().open(str(path), read_only=True), 0, 4 * MiB)


def test_parts_behind_a_file_count_and_the_file_does_not(tmp_path: Path) -> None:
    world = World()
    world.file = region(tmp_path / "log")
    (client,) = world.silent(MiB)
    assert MiB <= world.held < MiB + 2 * CHUNK_BYTES
    client.transport.take_all()
    world.bench.turns.run()
    assert world.held == 0
    assert len(client.answers[0]) == 5 * MiB + 1 - 4


def test_nobody_is_closed_whose_answer_waits_for_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv

    def cold(descriptor: int, rooms: list[memoryview], at: int, *flags: int) -> int:
        if flags:
            raise BlockingIOError
        return preadv(descriptor, rooms, at)

    monkeypatch.setattr(os, "preadv", cold)
    turns = TurnsWithThreads()
    world = World(turns)
    world.file = region(tmp_path / "log")
    clients = [world.bench.connect() for _ in range(2 * LIMIT // MiB)]
    for client in clients:
        client.send(framed(other(b"%d" % MiB)))
    turns.run()
    assert len(turns.pulls) == len(clients)
    assert world.held > LIMIT
    world.pass_patience()
    assert not any(closed(clients))


class TlsTransport(FakeTransport):
    """One that encrypts, as far as a connection can tell."""

    def __init__(self, takes: int | None) -> None:
        super().__init__(takes)
        self._extra["sslcontext"] = object()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (1, 0)


@pytest.mark.parametrize("size", [CHUNK_BYTES, CHUNK_BYTES + TAIL_BYTES, CHUNK_BYTES + TAIL_BYTES + 1, 2 * MiB])
def test_with_tls_a_large_answer_is_encrypted_a_piece_at_a_time_and_all_of_it_counts(size: int) -> None:
    world = World()
    client = Client(world.bench, None, TlsTransport(0))
    client.send(framed(other(b"%d" % size), other(b"10")))
    world.bench.turns.run()
    assert len(client.transport.buffered) <= CHUNK_BYTES + TAIL_BYTES + 10
    assert size <= world.held <= size + 2 * CHUNK_BYTES + TAIL_BYTES
    for _ in range(size // CHUNK_BYTES + 2):
        client.transport.take(CHUNK_BYTES + TAIL_BYTES)
        world.bench.turns.run()
    assert [len(answer) for answer in client.answers] == [size - 4, 6]
    assert world.held == 0


def test_what_the_host_of_a_client_has_received_is_known_from_its_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as far_end:
        ours, _ = server.accept()
        with ours:
            client = World().bench.connect(takes=0)
            client.transport._extra["socket"] = ours
            ours.setblocking(False)
            before = client.connection.delivered
            ours.send(b"answer")
            eventually(lambda: client.connection.delivered != before, what="an acknowledgement")
            with pytest.raises(BlockingIOError):
                while True:
                    ours.send(bytes(MiB))
            before = client.connection.delivered
            eventually(lambda: far_end.recv(MiB) and client.connection.delivered != before, what="another acknowledgement")
