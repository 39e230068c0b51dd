"""Reads all records of a copy from the store, verifies each batch, and makes the indexes of the segment anew from what it reads.

The layouts of remote stores have no checksums for indexes. An index that turns out wrong is replaced by one that the records prove.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from ottla.protocol.records.batch import HEADER_SIZE, BatchHeader, crc_is_valid
from ottla.storage.remote.batch_checks import CorruptChunk, check_header, wrong_checksum
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.ports import RemoteObjectDamaged, RemoteStore
from ottla.storage.remote.threads import Threads
from ottla.storage.segment.index_builder import ENTRIES_BYTES, IndexBuilder

PIECE_BYTES: Final = 4 << 20
"""Bytes that are read at a time."""
WALK_BYTES: Final = 24 * 1024 * 1024
"""Memory that a walk takes, six pieces: one on its way from the store, the same with the rest of the last one, and its batches."""
INTERVAL_BYTES: Final = 4096
"""Bytes of records between two entries of an index that is made anew, the default of `index.interval.bytes`."""

Batches = list[tuple[int, BatchHeader, bytes]]
"""Position in the segment, header and bytes of each batch."""


class RecordWalk:
    """Verifies the batches of one copy, which `feed` gets piece by piece from the first byte on."""

    __slots__ = ("_entry", "_left", "_next_offset", "position")

    def __init__(self, entry: SegmentEntry) -> None:
        self._entry = entry
        self._next_offset = entry.start_offset
        self._left = b""
        self.position = 0
        """End of the batches that were verified, bytes."""

    def feed(self, piece: bytes | memoryview) -> Batches:
        """Returns the batches that are complete with this piece. Blocks. Raises CorruptChunk."""
        data = self._left + piece
        found: Batches = []
        at = 0
        while len(data) - at >= HEADER_SIZE:
            header = check_header(memoryview(data)[at : at + HEADER_SIZE], self.position, self._next_offset, self._entry)
            if at + header.size > len(data):
                break
            batch = data[at : at + header.size]
            if not crc_is_valid(batch):
                raise wrong_checksum(self.position)
            found.append((self.position, header, batch))
            at += header.size
            self.position += header.size
            self._next_offset = header.next_offset
        self._left = data[at:]
        return found

    def finish(self) -> None:
        """Raises CorruptChunk unless all bytes were batches. There may be less offsets than the entry has, not less bytes."""
        if self.position != self._entry.size:
            raise CorruptChunk(f"the batches end at byte {self.position}, and the segment has {self._entry.size}")


async def read_batches(entry: SegmentEntry, store: RemoteStore, threads: Threads) -> AsyncIterator[Batches]:
    """Reads the records of a copy, a piece at a time. Raises RemoteStoreError, also for records that are not what was copied."""
    walk = RecordWalk(entry)
    try:
        for start in range(0, entry.size, PIECE_BYTES):
            data = await store.fetch(entry, start, min(start + PIECE_BYTES, entry.size))
            yield await threads(partial(walk.feed, data))
        walk.finish()
    except CorruptChunk as error:
        partition = entry.id.partition
        raise RemoteObjectDamaged(
            f"the remote segment of {partition.topic}-{partition.partition} at offset {entry.start_offset} is not what was copied: {error}"
        ) from None


def rebuild_bytes(entry: SegmentEntry) -> int:
    """Returns the memory that `rebuild_indexes` takes."""
    return WALK_BYTES + 2 * ENTRIES_BYTES * (entry.size // INTERVAL_BYTES + 2)


async def rebuild_indexes(entry: SegmentEntry, store: RemoteStore, threads: Threads) -> tuple[bytes, bytes]:
    """Returns the offset index and the time index that the records of a copy prove. Reads all records. Raises RemoteStoreError."""
    builder = IndexBuilder(str(entry.id), entry.start_offset, INTERVAL_BYTES)
    async for batches in read_batches(entry, store, threads):
        for position, header, _ in batches:
            builder.add(position, header)
    builder.finish()
    return bytes(builder.offset_index), bytes(builder.time_index)
