"""Regions of files on a connection whose transport has to carry them (TLS), and regions that are not in the page cache."""

import asyncio
import errno
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.network import descriptors
from ottla.broker.network.gather import ALIGNED_BYTES, INLINE_BYTES, PAGE_BYTES, UNCOPIED_BYTES, from_next_page, join
from ottla.broker.network.request_channel import Answer, Parts
from ottla.broker.network.sendfile import CHUNK_BYTES, TAIL_BYTES, FileSender
from ottla.broker.security.client import Client
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.segment.file_region import FileRegion
from tests.support.examples import number_of
from tests.support.network import Bench, Turns, framed, other

DATA = random.Random(1).randbytes(3 * 1024 * 1024)


class Pull:
    """What run_in_executor returned: done when the test says so."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._callbacks: list[Callable[[object], None]] = []
        self._error: OSError | None = None

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        self._callbacks.append(callback)

    def cancelled(self) -> bool:
        return False

    def exception(self) -> OSError | None:
        return self._error

    def finish(self) -> None:
        try:
            self._work()
        except OSError as error:
            self._error = error
        for callback in self._callbacks:
            callback(self)


class TurnsWithThreads(Turns):
    """A hand-turned loop whose threads run when they are told."""

    def __init__(self) -> None:
        super().__init__()
        self.pulls: list[Pull] = []

    def run_in_executor(self, executor: None, work: Callable[..., None], *arguments: object) -> Pull:
        self.pulls.append(Pull(lambda: work(*arguments)))
        return self.pulls[-1]


class EmptyTransport(asyncio.Transport):
    """One without bytes to send."""

    def get_write_buffer_size(self) -> int:
        return 0


class Owner:
    """The connection of a sender."""

    def __init__(self) -> None:
        self.client = Client("here-there", "there", 1, "PLAINTEXT")
        self.is_aborted = False

    def touch(self) -> None:
        """See `sendfile.Owner`."""

    def on_sent(self) -> None:
        """See `sendfile.Owner`."""

    def abort(self) -> None:
        self.is_aborted = True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "segment.log"
    file.write_bytes(DATA)
    return file


@pytest.fixture
def _cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is in the page cache: a read that may not wait reads nothing."""
    preadv = os.preadv

    def read(descriptor: int, rooms: list[memoryview], at: int, *flags: int) -> int:
        if flags:
            raise BlockingIOError
        return preadv(descriptor, rooms, at)

    monkeypatch.setattr(os, "preadv", read)


def a_bench(path: Path, turns: Turns | None = None) -> Bench:
    file = RealFileSystem().open(str(path), read_only=True)

    def handler(frame: memoryview, connection: object) -> Answer:
        if frame[1] == 3:
            return bytes(frame)
        length = int.from_bytes(frame[2:6], "big")
        return [b"<", FileRegion(file, 10, length), b">"]

    return Bench(handler, turns=turns)


def fetch(length: int) -> bytes:
    return b"\x00\x01" + length.to_bytes(4, "big")


def expected(length: int) -> bytes:
    return b"<" + DATA[10 : 10 + length] + b">"


def test_a_transport_carries_regions_between_other_answers(path: Path) -> None:
    bench = a_bench(path)
    client = bench.connect()
    lengths = [0, 1, INLINE_BYTES, INLINE_BYTES + 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2_500_000]
    client.send(framed(other(b"first"), *[fetch(length) for length in lengths], other(b"last")))
    bench.turns.run()
    assert client.answers == [other(b"first"), *[expected(length) for length in lengths], other(b"last")]


@pytest.mark.parametrize(
    ("length", "writes"), [(1, 1), (65_536, 1), (CHUNK_BYTES, 1), (CHUNK_BYTES + 2 * TAIL_BYTES, 2), (1 << 20, (1 << 20) // CHUNK_BYTES)]
)
def test_a_header_its_records_and_what_follows_leave_in_as_few_writes_as_pieces(path: Path, length: int, writes: int) -> None:
    bench = a_bench(path)
    client = bench.connect()
    client.send_all(framed(fetch(length)))
    assert client.answers == [expected(length)]
    assert client.transport.writes == writes


def test_a_slow_reader_costs_a_chunk_of_memory_and_not_the_file(path: Path) -> None:
    bench = a_bench(path)
    client = bench.connect(takes=0)
    client.send(framed(fetch(2_500_000), other(b"last")))
    sent = -1
    while len(client.transport.sent) > sent:
        sent = len(client.transport.sent)
        assert len(client.transport.buffered) <= CHUNK_BYTES + TAIL_BYTES
        client.transport.take(50_000)
        bench.turns.run()
    assert client.answers == [expected(2_500_000), other(b"last")]


@pytest.mark.usefixtures("_cold")
def test_what_is_not_in_the_page_cache_is_pulled_in_by_a_thread_first(path: Path) -> None:
    turns = TurnsWithThreads()
    bench = a_bench(path, turns)
    slow, quick = bench.connect(), bench.connect()
    slow.send(framed(fetch(1_500_000), other(b"behind")))
    quick.send(framed(other(b"quick")))
    turns.run()
    assert quick.answers == [other(b"quick")]
    assert len(slow.transport.sent) < 10
    while turns.pulls:
        turns.pulls.pop().finish()
        turns.run()
    assert slow.answers == [expected(1_500_000), other(b"behind")]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(number_of(30)))
def test_any_parts_arrive_in_order_however_slowly_client_and_disk_are(path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    preadv, file = os.preadv, RealFileSystem().open(str(path), read_only=True)
    sizes = (0, 1, 97, 4_096, INLINE_BYTES, TAIL_BYTES + 1, CHUNK_BYTES - 3, CHUNK_BYTES, 300_000, 1_200_000)

    def read(descriptor: int, rooms: list[memoryview], at: int, *flags: int) -> int:
        if flags and chance.random() < 0.3:
            raise BlockingIOError
        return preadv(descriptor, rooms, at)

    def part() -> bytes | memoryview | FileRegion:
        length, at = chance.choice(sizes), chance.randrange(1_500_000)
        return chance.choice([FileRegion(file, at, length), memoryview(DATA)[at : at + length], DATA[at : at + length]])

    monkeypatch.setattr(os, "preadv", read)
    answers = [[b"head", *(part() for _ in range(chance.randrange(8)))] for _ in range(4)]
    turns = TurnsWithThreads()
    client = Bench(lambda frame, connection: list(answers[frame[2]]), turns=turns).connect(takes=0)
    client.send(framed(*(other(bytes((number,))) for number in range(len(answers)))))
    wanted = framed(*(b"".join(each.read() if isinstance(each, FileRegion) else bytes(each) for each in answer) for answer in answers))
    for _ in range(10_000):
        if turns.pulls and chance.random() < 0.5:
            turns.pulls.pop().finish()
        client.transport.take(chance.choice([1, 10_000, 200_000]))
        turns.run()
        if len(client.transport.sent) >= len(wanted):
            break
    assert bytes(client.transport.sent) == wanted


@pytest.mark.usefixtures("_cold")
def test_a_client_that_leaves_while_a_thread_reads_for_it_is_forgotten(path: Path) -> None:
    turns = TurnsWithThreads()
    bench = a_bench(path, turns)
    client = bench.connect()
    client.send(framed(fetch(1_500_000)))
    client.connection.connection_lost(None)
    turns.pulls.pop().finish()
    turns.run()
    assert turns.pulls == []
    assert len(client.transport.sent) < 10


@pytest.mark.usefixtures("_cold")
def test_a_small_region_that_is_cold_waits_for_the_thread_too(path: Path) -> None:
    turns = TurnsWithThreads()
    bench = a_bench(path, turns)
    client = bench.connect()
    client.send_all(framed(fetch(100)))
    assert len(turns.pulls) == 1
    turns.pulls.pop().finish()
    turns.run()
    assert client.answers == [expected(100)]


def test_a_file_that_cannot_be_read_closes_its_connection(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    turns = TurnsWithThreads()
    bench = a_bench(path, turns)
    client, healthy = bench.connect(), bench.connect()
    client.send(framed(fetch(len(DATA) + 5)))
    turns.run()
    while turns.pulls:  # what is not in the file is not in the page cache either
        turns.pulls.pop().finish()
        turns.run()
    healthy.send_all(framed(other(b"fine")))
    assert client.transport.aborted
    assert healthy.answers == [other(b"fine")]
    ((level, text, exc_info),) = [(record.levelname, record.getMessage(), record.exc_info) for record in caplog.records]
    assert (level, exc_info) == ("ERROR", None)
    assert f"{path} cannot be read: the file is shorter than the log said" in text


@pytest.mark.parametrize("length", [100, 100_000])
def test_a_disk_that_refuses_closes_the_connection_and_the_log_names_the_file(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for name in ("sendfile", "pread", "preadv"):
        monkeypatch.setattr(os, name, refuse)
    turns = TurnsWithThreads()
    bench = a_bench(path, turns)
    client = bench.connect()
    client.send(framed(fetch(length)))
    turns.run()
    turns.pulls.pop().finish()  # the thread finds the same
    turns.run()
    assert client.transport.aborted
    ((level, text, exc_info),) = [(record.levelname, record.getMessage(), record.exc_info) for record in caplog.records]
    assert (level, exc_info) == ("ERROR", None)
    assert f"{path} cannot be read: Input/output error" in text


@pytest.mark.parametrize("limit", [0, 1 << 30], ids=["connections have all that they may", "none is free"])
def test_a_connection_that_has_no_descriptor_to_wait_with_looks_now_and_then(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    def none_is_free(descriptor: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        there.setblocking(False)
        if limit:
            monkeypatch.setattr(os, "dup", none_is_free)
        monkeypatch.setattr(descriptors, "files_for_connections", lambda _: limit)
        owner, loop = Owner(), asyncio.new_event_loop()
        try:
            sender = FileSender(owner, loop, EmptyTransport(), here)
            assert not sender.send([bytes(1_000_000)])
            received = 0
            while received < 1_000_000:
                received += len(loop.run_until_complete(asyncio.wait_for(loop.sock_recv(there, 1 << 20), 60)))
        finally:
            loop.close()
        assert not owner.is_aborted


@pytest.mark.parametrize("position", [0, 1, PAGE_BYTES - 1, PAGE_BYTES, 5 * PAGE_BYTES + 77])
@pytest.mark.parametrize("length", [INLINE_BYTES, INLINE_BYTES + 1, 65_536, ALIGNED_BYTES, ALIGNED_BYTES + 1])
def test_a_region_of_moderate_size_is_left_to_the_kernel_from_a_page_on(path: Path, position: int, length: int) -> None:
    file = RealFileSystem().open(str(path), read_only=True)
    memory: list[bytes | bytearray | memoryview] = [b"head"]
    rest = from_next_page(FileRegion(file, position, length), memory)
    assert b"".join(memory) + rest.read() == b"head" + DATA[position : position + length]
    if INLINE_BYTES < length <= ALIGNED_BYTES:
        assert rest.position % PAGE_BYTES == 0


def test_a_region_whose_first_page_is_cold_is_left_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def would_block(*_: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", would_block)
    region = FileRegion(RealFileSystem().open(str(path), read_only=True), 10, 65_536)
    memory: list[bytes | bytearray | memoryview] = []
    assert from_next_page(region, memory) is region
    assert not memory


def test_small_regions_and_what_stands_between_them_leave_as_one_part(path: Path) -> None:
    file = RealFileSystem().open(str(path), read_only=True)
    small = [FileRegion(file, 7_000 * each, INLINE_BYTES - each) for each in range(5)]
    large = FileRegion(file, PAGE_BYTES, INLINE_BYTES + 1)
    parts: Parts = [b"<", small[0], b"", b"between", *small[1:4], large, FileRegion(file, 3, 0), memoryview(b"behind"), small[4], b">"]
    before, rest, behind = join(parts)
    whole = [DATA[each.position : each.position + each.length] for each in small]
    assert before == b"<" + whole[0] + b"between" + b"".join(whole[1:4])
    assert isinstance(rest, FileRegion)
    assert (rest.position, rest.length) == (large.position, large.length)
    assert behind == b"behind" + whole[4] + b">"


def test_large_memory_leaves_as_it_is_because_other_connections_may_refer_to_it(path: Path) -> None:
    file = RealFileSystem().open(str(path), read_only=True)
    shared = bytearray(UNCOPIED_BYTES)
    first, alone, last = join([b"<", FileRegion(file, 50, 100), shared, b"be", b"hind"])
    assert first == b"<" + DATA[50:150]
    assert alone is shared
    assert last == b"behind"


def test_a_small_region_that_is_cold_leaves_between_what_is_warm(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, cold = (RealFileSystem().open(str(path), read_only=True) for _ in range(2))
    preadv = os.preadv

    def read(descriptor: int, *rest: Any) -> int:
        if descriptor == cold.fileno():
            raise BlockingIOError
        return preadv(descriptor, *rest)

    monkeypatch.setattr(os, "preadv", read)
    warm = FileRegion(file, 50, 100)
    waits = FileRegion(cold, 10, 200)
    first, second, *third = join([b"<", warm, waits, waits, warm, b">"])
    assert first == b"<" + DATA[50:150]
    assert second is third[0] is waits
    assert third[1:] == [DATA[50:150] + b">"]
