"""Answers with regions of files that leave over a socket of the connection's own: at once, or the rest when there is room."""

from __future__ import annotations

import os
import random
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.network import sendfile as sendfile_module
from ottla.broker.network.gather import INLINE_BYTES, PACKET_BYTES, PAGE_BYTES
from ottla.broker.network.request_channel import Parts
from ottla.broker.network.sendfile import PACED_BYTES, SHORT_FILE, FileSender, piece_of
from ottla.broker.network.sendfile import SENDER_TURN_BYTES as TURN_BYTES
from ottla.storage.disk.filesystem import RealFile, RealFileSystem
from ottla.storage.segment.file_region import FileRegion

DATA = random.Random(3).randbytes(3 * 1024 * 1024)
PARTS = st.tuples(
    st.sampled_from([0, 1, 77, PAGE_BYTES - 1, PAGE_BYTES, 3 * PAGE_BYTES + 5, 500_001]),
    st.sampled_from([0, 1, 100, INLINE_BYTES, INLINE_BYTES + 1, 40_000, 65_536, 65_537, 68_000, 70_000, 300_000]),
    st.booleans(),
)
"""(position, length, whether in the file)."""


class Loop:
    """Knows who waits for room, and lets threads run when the test says so."""

    def __init__(self) -> None:
        self.writers: dict[int, Callable[[], None]] = {}
        self.pulls: list[Callable[[], None]] = []

    def add_writer(self, descriptor: int, callback: Callable[[], None]) -> None:
        assert descriptor not in self.writers
        self.writers[descriptor] = callback

    def remove_writer(self, descriptor: int) -> None:
        del self.writers[descriptor]

    def run_in_executor(self, executor: None, work: Callable[..., None], *arguments: object) -> Any:
        done: list[Callable[[Any], None]] = []
        pulling = SimpleNamespace(add_done_callback=done.append, cancelled=lambda: False, exception=lambda: None)

        def finish() -> None:
            work(*arguments)
            for each in done:
                each(pulling)

        self.pulls.append(finish)
        return pulling

    def there_is_room(self) -> None:
        """Call whoever waits for it."""
        for callback in list(self.writers.values()):
            callback()


class Side:
    """A sender, what stands in for its connection and transport, and the client's socket."""

    def __init__(self) -> None:
        ours, self.far_end = socket.socketpair()
        ours.setblocking(False)
        self.far_end.setblocking(False)
        self.ours = ours
        self.loop = Loop()
        self.held = 0
        self.sent = 0
        self.aborted = False
        transport: Any = SimpleNamespace(get_write_buffer_size=lambda: self.held)
        self.sender = FileSender(self, self.loop, transport, ours)  # type: ignore[arg-type]  # stand-ins with what a sender uses

    client = SimpleNamespace(connection_id="test")

    def touch(self) -> None: ...

    def on_sent(self) -> None:
        self.sent += 1

    def abort(self) -> None:
        self.aborted = True

    def received(self) -> bytes:
        """What has arrived at the client."""
        got = bytearray()
        while True:
            try:
                got += self.far_end.recv(1 << 20)
            except BlockingIOError:
                return bytes(got)

    def all_received(self) -> bytes:
        """The client reads until nobody waits for room, or for pages that the system took from the cache."""
        got = self.received()
        while (self.loop.writers or self.loop.pulls) and not self.aborted:
            while self.loop.pulls:
                self.loop.pulls.pop(0)()
            self.loop.there_is_room()
            got += self.received()
        return got


@pytest.fixture
def side() -> Iterator[Side]:
    found = Side()
    yield found
    found.sender.close()
    found.ours.close()
    found.far_end.close()


class WarmFile:
    """A file that is in the page cache, whatever the system has taken from there meanwhile."""

    def __init__(self, file: RealFile | WarmFile) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def is_cached(self, length: int, at: int) -> bool:
        return True

    def pread_cached(self, length: int, at: int) -> bytes | None:
        return self._file.pread(length, at)


@pytest.fixture
def file(tmp_path: Path) -> WarmFile:
    path = tmp_path / "segment.log"
    path.write_bytes(DATA)
    return WarmFile(RealFileSystem().open(str(path), read_only=True))


def an_answer(file: object, position: int, length: int, *, end_is_cached: bool = False) -> tuple[Parts, bytes]:
    """The parts of an answer, and the bytes they are."""
    region = FileRegion(file, position, length, end_is_cached)  # type: ignore[arg-type]  # tests give files that pretend
    return [b"<head>", region, b"<tail>"], b"<head>" + DATA[position : position + length] + b"<tail>"


@pytest.mark.parametrize("end_is_cached", [False, True])
@pytest.mark.parametrize("position", [0, 1, PAGE_BYTES - 1, 5 * PAGE_BYTES, 5 * PAGE_BYTES + 77])
def test_what_the_socket_takes_leaves_at_once_and_nobody_is_told(side: Side, file: WarmFile, position: int, end_is_cached: bool) -> None:
    parts, expected = an_answer(file, position, INLINE_BYTES + 1000, end_is_cached=end_is_cached)
    assert side.sender.send(parts)
    assert side.received() == expected
    assert not side.loop.writers
    assert side.sent == 0


def test_several_answers_and_parts_without_bytes_around_them_keep_their_order(side: Side, file: WarmFile) -> None:
    one, first = an_answer(file, 123, 20_000)
    other, second = an_answer(file, 4096, 30_000)
    bare = FileRegion(file, 99, 17_000)
    empty = FileRegion(file, 5, 0)
    assert side.sender.send([*one, empty, *other, bare, bare])
    assert side.received() == first + second + DATA[99:17_099] * 2


@pytest.mark.parametrize("position", [0, 77])
@pytest.mark.parametrize("length", [200_000, 256 * 1024, 1_000_000, 2_500_000])
def test_the_rest_leaves_in_order_when_there_is_room(side: Side, file: WarmFile, position: int, length: int) -> None:
    side.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000)
    one, first = an_answer(file, position, length)
    other, second = an_answer(file, 5, 20_000)
    assert not side.sender.send(one)
    assert not side.sender.send([b"between"])
    assert not side.sender.send(other)
    assert side.all_received() == first + b"between" + second
    assert side.sent == 1


@settings(deadline=None, max_examples=150)
@given(st.lists(st.lists(PARTS, min_size=1, max_size=20), max_size=4), st.sampled_from([5_000, 50_000, 2_000_000]))
def test_whatever_is_sent_arrives_in_order(answers: list[list[tuple[int, int, bool]]], room: int) -> None:
    side = Side()
    side.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
    with tempfile.NamedTemporaryFile() as stored:
        stored.write(DATA)
        stored.flush()
        file = WarmFile(RealFileSystem().open(stored.name, read_only=True))
        expected = got = b""
        for answer in answers:
            parts: Parts = []
            for position, length, is_in_file in answer:
                expected += DATA[position : position + length]
                if is_in_file:
                    parts.append(FileRegion(file, position, length, position % 3 > 0))  # type: ignore[arg-type]  # a file that pretends
                else:
                    parts.append(DATA[position : position + length])
            side.sender.send(parts)
            got += side.received()
        assert got + side.all_received() == expected
    side.sender.close()
    side.ours.close()
    side.far_end.close()


def test_a_file_that_is_shorter_than_the_log_said_costs_the_connection(
    side: Side, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(DATA[:60_000])
    short = RealFileSystem().open(str(path), read_only=True)
    side.sender.send([b"head", FileRegion(short, 77, 64_000, True), b"tail"])
    side.all_received()
    assert side.aborted
    assert f"{path} cannot be read: {SHORT_FILE}" in caplog.text


def test_a_client_that_has_gone_costs_its_connection(side: Side, file: WarmFile) -> None:
    side.far_end.close()
    parts, _ = an_answer(file, 77, 64_000, end_is_cached=True)
    assert not side.sender.send(parts)
    assert side.aborted


def test_a_socket_that_takes_nothing_at_all_gets_everything_later(side: Side, file: WarmFile) -> None:
    filled = 0
    while True:
        try:
            filled += side.ours.send(bytes(100_000))
        except BlockingIOError:
            break
    parts, expected = an_answer(file, 77, 50_000)
    assert not side.sender.send(parts)
    assert side.all_received() == bytes(filled) + expected


def test_who_waited_for_room_is_called_once_more_and_then_not(side: Side, file: WarmFile) -> None:
    side.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000)
    parts, expected = an_answer(file, 0, 150_000)
    assert not side.sender.send(parts)
    got = b""
    while not side.sent:
        got += side.received()
        side.loop.there_is_room()
    assert len(side.loop.writers) == 1  # the next answer may have to wait as well: then nothing has to be set up again
    side.loop.there_is_room()
    assert not side.loop.writers
    assert side.sent == 1
    assert got + side.received() == expected


def test_nothing_overtakes_what_the_transport_still_holds(side: Side, file: WarmFile) -> None:
    side.held = 5
    parts, expected = an_answer(file, 0, 50_000)
    assert not side.sender.send(parts)
    assert side.received() == b""
    side.held = 0
    side.sender.pump()
    assert side.received() == expected
    assert side.sent == 1


class ColdFile(WarmFile):
    """A file of which nothing is in the page cache until a thread has read it."""

    def is_cached(self, length: int, at: int) -> bool:
        return False

    def pread_cached(self, length: int, at: int) -> bytes | None:
        return None


@pytest.mark.parametrize("position", [0, 77])
@pytest.mark.parametrize("length", [50_000, 1_000_000])
def test_what_is_cold_is_read_by_a_thread_before_it_is_sent(
    side: Side, file: WarmFile, monkeypatch: pytest.MonkeyPatch, position: int, length: int
) -> None:
    monkeypatch.setattr(os, "preadv", lambda *_: (_ for _ in ()).throw(BlockingIOError))
    parts, expected = an_answer(ColdFile(file), position, length)
    assert not side.sender.send(parts)
    assert not side.loop.writers
    before = side.received()
    assert len(before) <= len(b"<head>")
    side.loop.pulls.pop()()
    assert before + side.all_received() == expected
    assert side.sent == 1


class HalfColdFile(WarmFile):
    """A file whose ends are in the page cache, and what lies between is not."""

    def is_cached(self, length: int, at: int) -> bool:
        return length == 1


def test_of_more_than_a_packet_not_only_the_ends_are_looked_at(side: Side, file: WarmFile) -> None:
    parts, expected = an_answer(HalfColdFile(file), 77, 200_000, end_is_cached=True)
    assert not side.sender.send(parts)
    before = side.received()
    assert len(before) <= len(b"<head>") + PAGE_BYTES
    side.loop.pulls.pop()()
    assert before + side.all_received() == expected


def test_a_turn_sends_no_more_than_its_share(side: Side, file: WarmFile, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def sendfile(out: int, source: int, position: int, count: int) -> int:
        counts.append(count)
        return count

    monkeypatch.setattr(os, "sendfile", sendfile)
    monkeypatch.setattr(sendfile_module, "_send_pieces", sendfile_module.send_pieces)
    parts, _ = an_answer(file, 0, 2 * TURN_BYTES + 5)
    assert not side.sender.send(parts)
    assert counts == [TURN_BYTES - len(b"<head>")]
    side.loop.there_is_room()
    assert sum(counts) == 2 * TURN_BYTES - len(b"<head>")
    side.loop.there_is_room()
    assert sum(counts) == 2 * TURN_BYTES + 5
    assert side.sent == 1


def test_a_file_that_is_shorter_than_its_region_closes_the_connection(side: Side, file: WarmFile) -> None:
    region = FileRegion(file, len(DATA) - 20_000, 40_000, end_is_cached=True)
    assert not side.sender.send([b"<", region, b">"])
    while side.loop.pulls:
        side.loop.pulls.pop()()
    for _ in range(3):
        side.loop.there_is_room()
    assert side.aborted
    assert side.sent == 0


def test_a_client_that_is_gone_closes_the_connection(side: Side, file: WarmFile) -> None:
    side.far_end.close()
    parts, _ = an_answer(file, 0, 50_000)
    assert not side.sender.send(parts)
    assert side.aborted


class Paced:
    """A socket that says how it controls congestion."""

    def __init__(self, algorithm: bytes) -> None:
        self._algorithm = algorithm

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return self._algorithm.ljust(size, b"\x00")


def test_a_socket_that_paces_its_packets_is_given_one_at_a_time() -> None:
    assert piece_of(Paced(b"bbr")) == PACED_BYTES  # type: ignore[arg-type]  # only asked for that option
    assert piece_of(Paced(b"cubic")) == TURN_BYTES  # type: ignore[arg-type]  # as above
    assert piece_of(None) == TURN_BYTES
    with socket.socket(socket.AF_UNIX) as without_the_option:
        assert piece_of(without_the_option) == TURN_BYTES


@pytest.fixture(params=[False, True], ids=["python", "compiled"])
def send_pieces(request: pytest.FixtureRequest) -> Callable[[int, int, int, int, int, int], int]:
    if not request.param:
        return sendfile_module.send_pieces
    found: Callable[[int, int, int, int, int, int], int] = pytest.importorskip("ottla.broker.network.native").send_pieces
    return found


@pytest.mark.parametrize("length", [PACKET_BYTES, PACKET_BYTES + 1, 1_000_000, TURN_BYTES + PACKET_BYTES])
def test_in_pieces_the_same_leaves(
    side: Side, file: WarmFile, length: int, send_pieces: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sendfile_module, "_send_pieces", send_pieces)
    side.sender.piece = PACED_BYTES
    one, first = an_answer(file, 77, length)
    other, second = an_answer(file, 4096, length)
    side.sender.send(one)
    side.sender.send(other)
    assert side.all_received() == first + second


def test_a_region_that_fits_a_packet_is_not_cut(side: Side, file: WarmFile, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def sendfile(out: int, source: int, position: int, count: int) -> int:
        counts.append(count)
        return count

    monkeypatch.setattr(os, "sendfile", sendfile)
    monkeypatch.setattr(sendfile_module, "_send_pieces", sendfile_module.send_pieces)
    side.sender.piece = PACED_BYTES
    for length in (PACKET_BYTES, 2 * PACED_BYTES + PACKET_BYTES):
        assert side.sender.send(an_answer(file, 0, length)[0])
    assert counts == [PACKET_BYTES, PACED_BYTES, PACED_BYTES, PACKET_BYTES]


def test_pieces_leave_until_there_is_no_room(side: Side, file: WarmFile, send_pieces: Callable[..., int]) -> None:
    out, source = side.ours.fileno(), file.fileno()
    gone = send_pieces(out, source, 77, 2_000_000, PACED_BYTES, PACKET_BYTES)
    assert 0 < gone < 2_000_000
    with pytest.raises(BlockingIOError):
        send_pieces(out, source, 77 + gone, 2_000_000 - gone, PACED_BYTES, PACKET_BYTES)
    assert side.received() == DATA[77 : 77 + gone]


def test_of_a_file_that_ends_too_soon_leaves_what_it_has(side: Side, file: WarmFile, send_pieces: Callable[..., int]) -> None:
    out, source = side.ours.fileno(), file.fileno()
    assert send_pieces(out, source, len(DATA) - 100_000, 200_000, PACED_BYTES, PACKET_BYTES) == 100_000
    assert side.received() == DATA[-100_000:]
    assert send_pieces(out, source, len(DATA), 200_000, PACED_BYTES, PACKET_BYTES) == 0


def test_what_fails_before_anything_has_left_is_raised(side: Side, file: WarmFile, send_pieces: Callable[..., int]) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        send_pieces(side.ours.fileno(), -1, 0, 10, PACED_BYTES, PACKET_BYTES)
    side.far_end.close()
    with pytest.raises(BrokenPipeError):
        send_pieces(side.ours.fileno(), file.fileno(), 0, 10, PACED_BYTES, PACKET_BYTES)
