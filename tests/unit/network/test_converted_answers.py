"""Answers to old consumers on a connection: converted by threads, one piece after the other, as the client reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ottla.broker.network.request_channel import Answer
from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.disk.yielding import no_yield
from ottla.storage.segment.converted_region import PIECE_BYTES, ConvertedRegion
from ottla.storage.segment.file_region import FileRegion
from tests.support.batches import a_batch
from tests.support.network import Bench, Turns, framed, other
from tests.support.old_messages import read

BATCHES = 100


class Work:
    """A call that a thread does when the test lets it."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._result: object = None
        self._error: BaseException | None = None
        self.is_error_known = False
        self._callbacks: list[Callable[[object], None]] = []

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        self._callbacks.append(callback)

    def cancel(self) -> bool:
        """A thread that works does not stop."""
        return False

    def cancelled(self) -> bool:
        return False

    def exception(self) -> BaseException | None:
        self.is_error_known = True
        return self._error

    def result(self) -> object:
        return self._result

    def finish(self) -> None:
        try:
            self._result = self._work()
        except Exception as error:
            self._error = error
        for callback in self._callbacks:
            callback(self)


class TurnsWithThreads(Turns):
    """A hand-turned loop whose threads run when they are told."""

    def __init__(self) -> None:
        super().__init__()
        self.works: list[Work] = []

    def expand(self, work: Callable[[int], object]) -> Work:
        self.works.append(Work(partial(work, MAX_DECOMPRESSED_BYTES)))
        return self.works[-1]


class World:
    """A connection whose requests are answered with a converted log of `BATCHES` batches."""

    def __init__(self, path: Path) -> None:
        data = b"".join(bytes(a_batch(10, base_offset=10 * number, value_bytes=500)) for number in range(BATCHES))
        path.write_bytes(data)
        self.size = len(data)
        self.converted = 0
        self.turns = TurnsWithThreads()
        self.path = path
        self.bench = Bench(self._handle, turns=self.turns)

    def _handle(self, frame: memoryview, connection: object) -> Answer:
        if frame[1] == 3:
            return bytes(frame)
        file = RealFileSystem().open(str(self.path), read_only=True)
        region = ConvertedRegion(FileRegion(file, 0, self.size), 1, 0, self.turns.expand, self._count)  # type: ignore[arg-type]  # no Future
        region.begin(no_yield, takes_piece=False)
        return [b"<", region, b">"]

    def _count(self, records: int, nanoseconds: int, temporary_bytes: int) -> None:
        self.converted += records

    def finish_works(self) -> None:
        while self.turns.works:
            self.turns.works.pop().finish()
            self.turns.run()


FETCH = b"\x00\x01"


def test_the_pieces_are_sent_in_order_between_other_answers(tmp_path: Path) -> None:
    world = World(tmp_path / "log")
    client = world.bench.connect()
    client.send(framed(other(b"first"), FETCH, other(b"last")))
    world.turns.run()
    world.finish_works()
    first, answer, last = client.answers
    assert (first, last) == (other(b"first"), other(b"last"))
    assert (answer[:1], answer[-1:], len(answer)) == (b"<", b">", world.size + 2)
    offsets = [old.offset for old in read(answer[1:-1])]
    assert offsets == list(range(len(offsets)))
    assert len(offsets) > 9 * BATCHES
    assert world.converted >= len(offsets)


def test_a_slow_reader_costs_one_piece_and_other_clients_do_not_wait(tmp_path: Path) -> None:
    world = World(tmp_path / "log")
    slow, quick = world.bench.connect(takes=0), world.bench.connect()
    slow.send(framed(FETCH))
    for _ in range(20):
        world.turns.run()
        world.finish_works()
    quick.send(framed(other(b"quick")))
    world.turns.run()
    assert quick.answers == [other(b"quick")]
    assert len(slow.transport.buffered) < 2 * PIECE_BYTES
    assert world.converted < 10 * BATCHES / 2


def test_a_client_that_leaves_while_a_thread_converts_is_forgotten(tmp_path: Path) -> None:
    world = World(tmp_path / "log")
    client = world.bench.connect()
    client.send(framed(FETCH))
    world.turns.run()
    client.connection.connection_lost(None)
    world.finish_works()
    assert world.turns.works == []


def test_a_disk_that_refuses_after_the_client_has_left_is_no_unseen_error(tmp_path: Path) -> None:
    world = World(tmp_path / "log")
    client = world.bench.connect()
    client.send(framed(FETCH))
    world.turns.run()
    client.connection.connection_lost(None)
    world.path.write_bytes(b"")
    (work,) = world.turns.works
    world.finish_works()
    assert work.is_error_known


def test_a_disk_that_refuses_closes_the_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path / "log")
    client = world.bench.connect()
    client.send(framed(FETCH))
    world.turns.run()
    world.path.write_bytes(b"")
    world.finish_works()
    assert client.transport.aborted
    assert "cannot be read" in caplog.text
