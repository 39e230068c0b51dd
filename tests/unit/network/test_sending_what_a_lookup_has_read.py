"""What a lookup reads where a region begins leaves with it, and is that place's bytes whatever the socket takes at once."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.broker.network.gather import INLINE_BYTES, PACKET_BYTES, PAGE_BYTES
from ottla.storage.disk.filesystem import RealFile, RealFileSystem
from ottla.storage.segment.file_region import FileRegion
from tests.unit.network.test_sending_at_once import Side

DATA = random.Random(5).randbytes(256 * 1024)
LENGTHS = (INLINE_BYTES, INLINE_BYTES + 1, 40_000, PACKET_BYTES, PACKET_BYTES + 1, PACKET_BYTES + PAGE_BYTES)


class Log:
    """A log file in which batches begin where the test wants them."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(DATA)
        self.writable = os.open(path, os.O_WRONLY)
        self.file = RealFileSystem().open(str(path), read_only=True)
        assert type(self.file) is RealFile

    def put(self, data: bytes, at: int) -> None:
        """Overwrite what is there."""
        assert os.pwrite(self.writable, data, at) == len(data)

    def find(self, position: int, length: int) -> tuple[FileRegion, bytes]:
        """A region whose beginning was read along, and the bytes that are there now."""
        data = self.file.pread(length, position)
        return FileRegion(self.file, position, length, True, data[: kept_bytes(position, length)] or None), data


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    found = Log(tmp_path / "00000000000000000000.log")
    yield found
    os.close(found.writable)


@contextmanager
def a_side(room: int = 1 << 20, held: int = 0) -> Iterator[Side]:
    """A sender whose socket has so much room, and holds so many bytes already."""
    side = Side()
    side.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
    assert side.ours.send(bytes(held)) == held
    try:
        yield side
    finally:
        side.sender.close()
        side.ours.close()
        side.far_end.close()


@pytest.fixture
def side() -> Iterator[Side]:
    with a_side() as found:
        yield found


def kept_bytes(position: int, length: int) -> int:
    """How many bytes of such a region its lookup keeps."""
    copied = PAGE_BYTES - position % PAGE_BYTES
    return copied if copied < PAGE_BYTES and INLINE_BYTES < length <= PACKET_BYTES + copied else 0


@pytest.mark.slow
def test_from_anywhere_in_a_page_the_bytes_of_the_file_leave(side: Side, log: Log) -> None:
    for position in range(PAGE_BYTES, 2 * PAGE_BYTES):
        region, expected = log.find(position, LENGTHS[position % len(LENGTHS)])
        assert side.sender.send([b"<head>", region, b"<tail>"])
        assert side.all_received() == b"<head>" + expected + b"<tail>"


def test_they_are_read_once(side: Side, log: Log) -> None:
    others = bytes(2 * PAGE_BYTES)
    for position in (*range(PAGE_BYTES, 2 * PAGE_BYTES, 61), *range(2 * PAGE_BYTES - 28, 2 * PAGE_BYTES)):
        for length in LENGTHS:
            region, expected = log.find(position, length)
            log.put(others, position)
            kept = kept_bytes(position, length)
            assert side.sender.send([region])
            assert side.all_received() == expected[:kept] + others[kept:] + expected[len(others) :]
            log.put(DATA[position : position + length], position)


def test_a_socket_that_takes_only_a_part_gets_the_rest_later(log: Log) -> None:
    random_ = random.Random(9)
    for _ in range(300):
        held = random_.choice([0, 1, 2000])
        with a_side(random_.choice([0, 5000, 8000, 20_000, 50_000]), held) as side:
            region, expected = log.find(random_.randrange(PAGE_BYTES, 2 * PAGE_BYTES), random_.choice(LENGTHS))
            side.sender.send([b"<head>", region, b"<tail>"])
            assert side.all_received() == bytes(held) + b"<head>" + expected + b"<tail>"
