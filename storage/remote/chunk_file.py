"""Holds the chunks of one remote segment that are on this broker: one sparse file, each chunk at its original position.

So searches and `sendfile` treat the file as they treat a local segment. A chunk counts as present once the checksums of its batches were
verified; those of a batch across a border are verified when the chunks on both sides are there. When the disk refuses a chunk, its bytes
stay in memory for a while, and are answered from there.

`ChunkCache` owns the files. `store` runs in a thread, once at a time for each file; everything else runs on the event loop.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import NamedTuple

from ottla.protocol.records.batch import ATTRIBUTES_OFFSET, CURRENT_MAGIC, HEADER_SIZE, LOG_OVERHEAD, BatchHeader
from ottla.protocol.records.checksum import crc32c
from ottla.storage.disk.filesystem import File
from ottla.storage.disk.yielding import PacedYield
from ottla.storage.remote.batch_checks import CorruptChunk, check_header, wrong_checksum
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.segment.cold_lookups import UnwaitingFile

_READ_BYTES = 1 << 20
_FRONT = Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, checksum, attributes and last offset delta of a batch."""


class MissingChunk(Exception):
    """Chunk `number` of the segment, which a search needs, is not on this broker."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Added(NamedTuple):
    """A chunk that is being verified: its number, its position in the segment, and its bytes."""

    number: int
    at: int
    data: memoryview


class ChunkFile:
    """The chunks of a segment that are present."""

    __slots__ = (
        "_borders",
        "_entry",
        "_heads",
        "_open_at",
        "chunk_bytes",
        "file",
        "in_memory",
        "is_evicted",
        "lock",
        "present",
        "present_bytes",
        "size",
    )

    def __init__(self, file: File | None, entry: SegmentEntry, chunk_bytes: int) -> None:
        """`file` has the size of the segment, and nothing is written; None if the disk refused to make one."""
        self.file = file
        self._entry = entry
        self.lock = asyncio.Lock()
        """Held while a chunk is stored."""
        self.size = entry.size
        self.chunk_bytes = chunk_bytes
        self.present: set[int] = set()
        self.in_memory: dict[int, bytes | memoryview] = {}
        """Present chunks that the disk did not take."""
        self.present_bytes = 0
        """Bytes of the disk that it takes."""
        self.is_evicted = False
        self._heads: dict[int, int] = {}
        """Position of a batch from which a walk began -> its base offset."""
        self._open_at: dict[int, tuple[int, int]] = {}
        """Number of a chunk that is not there -> position of the batch whose check needs it, and the offset behind the batch before it."""
        self._borders: dict[int, tuple[int, int]] = {}
        """Number of a chunk -> the same for the batch at its beginning, if that was verified."""

    def length_of(self, number: int) -> int:
        """Returns the bytes of a chunk."""
        return min(self.chunk_bytes, self.size - number * self.chunk_bytes)

    def present_to(self, position: int) -> int:
        """Returns the end of the bytes that are present from `position` on, which may be that itself."""
        number = position // self.chunk_bytes
        while number in self.present:
            number += 1
        return max(position, min(number * self.chunk_bytes, self.size))

    def mark_present(self, number: int, length: int, is_on_disk: bool) -> None:
        """Makes a chunk visible that `store` has verified."""
        self.present.add(number)
        if is_on_disk:
            self.present_bytes += length

    def drop_from_memory(self, number: int) -> None:
        """Forgets a chunk that is only in memory."""
        if self.in_memory.pop(number, None) is not None:
            self.present.discard(number)
            # Other bytes may come the next time, so no walk may end at a batch of this chunk that was verified.
            self._heads = {position: offset for position, offset in self._heads.items() if position // self.chunk_bytes != number}
            if number in self._borders:
                self._open_at[number] = self._borders[number]

    # -- in a thread -----------------------------------------------------------------------------------------------------

    def store(self, number: int, data: bytes | memoryview, first_batch: int | None, on_disk: bool) -> None:
        """Writes a chunk and verifies its batches. `first_batch` is the position of one that begins in it, by the index.

        Raises CorruptChunk: this chunk or one before it is wrong, and the file is of no more use. Raises OSError if the disk refuses
        the chunk. Without `on_disk` it is kept in memory.
        """
        if len(data) != self.length_of(number):
            raise CorruptChunk(f"chunk {number} has {len(data)} bytes instead of {self.length_of(number)}")
        if on_disk and self.file is not None:
            self.file.pwrite(data, number * self.chunk_bytes)
        else:
            self.in_memory[number] = data
        added = _Added(number, number * self.chunk_bytes, memoryview(data))
        known = self._open_at.get(number)
        if (known is None or self._walk(*known, added, False) < number) and first_batch is not None:
            self._walk(first_batch, self._entry.start_offset, added, True)
        self._open_at.pop(number, None)  # not before: if the disk fails, the chunk is verified once more

    def _walk(self, position: int, next_offset: int, added: _Added, is_head: bool) -> int:
        """Verifies batches from `position` to a chunk that is not there, or to batches that were verified before.

        Their offsets are `next_offset` and higher. Returns the number of the chunk where it ends.
        """
        maybe_yield = PacedYield()
        while position < self.size:
            maybe_yield()
            missing = self._first_missing(position, min(position + HEADER_SIZE, self.size), added)
            if missing is None:
                header = self._header(position, next_offset, added)
                end = position + header.size
                missing = self._first_missing(position, end, added)
            if missing is not None:
                self._open_at[missing] = position, next_offset
                return missing
            self._verify(position, end, header, added)
            for number in range(-(-position // self.chunk_bytes), (end - 1) // self.chunk_bytes + 1):
                self._borders[number] = position, next_offset
            if is_head:
                self._heads[position] = header.base_offset
                is_head = False
            position, next_offset = self._walk_inside(end, header.next_offset, added, maybe_yield)
            if position in self._heads:
                if self._heads[position] < next_offset:
                    raise CorruptChunk(f"offset {self._heads[position]} follows {next_offset - 1} at byte {position}")
                break
        return position // self.chunk_bytes

    def _walk_inside(self, position: int, next_offset: int, added: _Added, maybe_yield: PacedYield) -> tuple[int, int]:
        """Verifies the batches from `position` on that the new chunk has as a whole, neither at its beginning nor over its end.

        Nearly all batches are verified here, for a third of the time in which the interpreter is held. Stops before a head, and before
        what is not right, and returns where.
        """
        data, heads, end_offset, epochs = added.data, self._heads, self._entry.end_offset, self._entry.leader_epochs
        at, whole = position - added.at, len(added.data) - HEADER_SIZE
        while 0 < at <= whole and at + added.at not in heads:
            maybe_yield()
            base_offset, length, epoch, magic, crc, _, last_delta = _FRONT.unpack_from(data, at)
            end = at + LOG_OVERHEAD + length
            last_offset = base_offset + last_delta
            if magic != CURRENT_MAGIC or not at + HEADER_SIZE <= end <= len(data) or epoch not in epochs:
                break
            if not next_offset <= base_offset <= last_offset <= end_offset or crc32c(data[at + ATTRIBUTES_OFFSET : end]) != crc:
                break
            at, next_offset = end, last_offset + 1
        return added.at + at, next_offset

    def _first_missing(self, start: int, end: int, added: _Added) -> int | None:
        if start >= added.at and end <= added.at + len(added.data):
            return None
        for number in range(start // self.chunk_bytes, (end - 1) // self.chunk_bytes + 1):
            if number not in self.present and number != added.number:
                return number
        return None

    def _header(self, position: int, next_offset: int, added: _Added) -> BatchHeader:
        """Returns the header of the batch at `position`, and checks what its checksum does not cover: length, offsets and epoch."""
        return check_header(self._read(position, min(HEADER_SIZE, self.size - position), added), position, next_offset, self._entry)

    def _verify(self, position: int, end: int, header: BatchHeader, added: _Added) -> None:
        crc = 0
        for at in range(position + ATTRIBUTES_OFFSET, end, _READ_BYTES):
            crc = crc32c(self._read(at, min(_READ_BYTES, end - at), added), crc)
        if crc != header.crc:
            raise wrong_checksum(position)

    def _read(self, position: int, length: int, added: _Added) -> bytes | memoryview:
        at = position - added.at
        if 0 <= at <= len(added.data) - length:
            return added.data[at : at + length]
        data = b"".join(self._pieces(position, position + length))
        if len(data) != length:
            raise CorruptChunk(f"{len(data)} bytes at byte {position} of the cached file, instead of {length}")
        return data

    def _pieces(self, position: int, end: int) -> list[bytes | memoryview]:
        pieces: list[bytes | memoryview] = []
        while position < end:
            number = position // self.chunk_bytes
            stop = min(end, (number + 1) * self.chunk_bytes)
            kept = self.in_memory.get(number)
            at = number * self.chunk_bytes
            if kept is not None:
                pieces.append(kept[position - at : stop - at])
            elif self.file is not None:
                pieces.append(self.file.pread(stop - position, position))
            position = stop
        return pieces

    # -- reading ---------------------------------------------------------------------------------------------------------

    def read(self, position: int, length: int) -> bytes | None:
        """Returns bytes that are present, from memory; None if all of them are on the disk."""
        if not self.in_memory or not any(number in self.in_memory for number in self._numbers(position, position + length)):
            return None
        return b"".join(self._pieces(position, position + length))

    def _numbers(self, start: int, end: int) -> range:
        return range(start // self.chunk_bytes, (end - 1) // self.chunk_bytes + 1)


class PresentBytes:
    """Reads what is present of a segment, for searches: `pread` as of File. Raises MissingChunk instead of reading a hole.

    With `is_whole` a read is complete or raises, otherwise it may end after a batch header at the next missing chunk.
    """

    __slots__ = ("_chunks", "_is_whole", "_through", "path")

    def __init__(self, chunks: ChunkFile, through: File | UnwaitingFile | None, is_whole: bool) -> None:
        """`through` reads the file of the chunks, if there is one."""
        self._chunks = chunks
        self._through = through
        self._is_whole = is_whole

    def pread(self, length: int, at: int) -> bytes:
        """Returns bytes of the segment."""
        chunks = self._chunks
        end = min(at + length, chunks.size)
        if end <= at:
            return b""
        found = chunks.present_to(at)
        if found < end:
            if self._is_whole or found < min(at + HEADER_SIZE, chunks.size):
                raise MissingChunk(found // chunks.chunk_bytes)
            end = found
        kept = chunks.read(at, end - at)
        if kept is not None:
            return kept
        assert self._through is not None  # without a file all that is present is in memory
        return self._through.pread(end - at, at)
