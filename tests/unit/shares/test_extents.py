"""The offsets of the batches in a region are those of their records, whatever the format; a batch that cannot be read ends the region."""

from __future__ import annotations

import errno

import pytest

from ottla.coordination.shares.extents import Extents
from ottla.coordination.shares.record_states import Acquired, Extent
from ottla.protocol.records.compression import CompressionCodec
from ottla.storage.remote.held_files import HeldFile
from ottla.storage.segment.file_region import FileRegion
from tests.support.old_messages import Old, message, wrapped
from tests.support.share_partitions import SharePlayer


def olds(first: int, last: int) -> list[Old]:
    return [Old(offset, -1, None, b"value") for offset in range(first, last + 1)]


def a_region(data: bytes, file: HeldFile | None = None) -> FileRegion:
    return FileRegion(file or HeldFile("", data), 0, len(data))  # type: ignore[arg-type]  # it is only read


@pytest.mark.parametrize("magic", [0, 1])
def test_all_records_of_a_compressed_message_are_delivered(magic: int) -> None:
    data = wrapped(magic, CompressionCodec.GZIP, olds(0, 9)) + message(magic, olds(10, 10)[0])
    data += wrapped(magic, CompressionCodec.GZIP, olds(15, 19))
    region = Extents(a_region(data))
    assert list(region) == [Extent(0, 9, True), Extent(10, 10, True), Extent(11, 19, True)], "some of 11 to 14 may be in the last one"
    player = SharePlayer(list(region), start=3)
    assert player.acquire("a") == [Acquired(3, 19, 1)]
    assert region.region(3, 9).length == len(wrapped(magic, CompressionCodec.GZIP, olds(0, 9)))


class BadFile(HeldFile):
    """A file with a bad block."""

    def pread(self, length: int, at: int) -> bytes:
        """See File."""
        raise OSError(errno.EIO, "Input/output error")


def test_the_region_ends_at_a_batch_that_cannot_be_read() -> None:
    good, bad = message(1, olds(0, 0)[0]), bytearray(message(1, olds(1, 1)[0]))
    bad[8:12] = (3).to_bytes(4, "big")
    damaged = Extents(a_region(good + bytes(bad)))
    assert list(damaged) == [Extent(0, 0, True)]
    assert damaged.failed is not None
    refused = Extents(a_region(good, BadFile("", good)))
    assert list(refused) == []
    assert isinstance(refused.failed, OSError)
    whole = Extents(a_region(good))
    assert (len(list(whole)), whole.failed) == (1, None)
