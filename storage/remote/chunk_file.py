"""Holds the chunks of one remote segment that are on this broker: one sparse file, each chunk at its original position.

So searches and `sendfile` treat the file as they treat a local segment. A chunk counts as present once it was verified (`chunk_checks`),
perhaps by the process that has fetched it. When the disk refuses a chunk, its bytes stay in memory for a while, and are answered from
there.

`ChunkCache` owns the files. Everything here runs on the event loop, but what `around` returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ottla.protocol.records.batch import HEADER_SIZE
from ottla.storage.disk.filesystem import File
from ottla.storage.remote.chunk_checks import Around, Border, Checked, ChunkCheck
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.segment.cold_lookups import UnwaitingFile


class MissingChunk(Exception):
    """Chunk `number` of the segment, which a search needs, is not on this broker."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class ChunkFile:
    """The chunks of a segment that are present."""

    __slots__ = (
        "_borders",
        "_entry",
        "_heads",
        "_waiting",
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
        self._heads: dict[int, dict[int, int]] = {}
        """Number of a chunk -> position of each batch in it from which a walk began -> its base offset."""
        self._waiting: dict[int, Border] = {}
        """Number of a chunk that is not there -> the batch whose verification needs it."""
        self._borders: dict[int, Border] = {}
        """Number of a chunk -> the batch at its beginning, if that was verified."""

    def present_to(self, position: int) -> int:
        """Returns the end of the bytes that are present from `position` on, which may be that itself."""
        number = position // self.chunk_bytes
        while number in self.present:
            number += 1
        return max(position, min(number * self.chunk_bytes, self.size))

    def check(self, number: int, first_batch: int | None) -> ChunkCheck:
        """Returns how to verify a chunk. `first_batch` is the position of a batch that begins in it, by the index."""
        border = self._waiting.get(number)
        if border is not None and first_batch is not None and first_batch < border.position:
            border = None  # only the end of this chunk was needed, while its beginning was dropped from memory
        first = number if border is None else border.position // self.chunk_bytes
        missing = number + 1
        while missing in self.present:
            missing += 1
        heads: dict[int, int] = {}
        for each in range(first, missing):
            found = self._heads.get(each)
            if found:
                heads |= found
                if each > number:
                    break  # no walk goes further
        from_border = next((each for each in range(first, number) if each not in self.present), missing)
        return ChunkCheck(self._entry, self.chunk_bytes, number, first_batch, border, from_border, missing, heads)

    def around(self) -> Around:
        """Returns a reader of what is present now, for a thread."""
        kept, file = dict(self.in_memory), self.file
        return lambda position, length: b"".join(self._pieces(position, position + length, kept, file))

    def mark_present(self, number: int, length: int, checked: Checked, kept: bytes | memoryview | None = None) -> None:
        """Makes a chunk visible that was verified. It is on the disk, or `kept` in memory."""
        self.present.add(number)
        if kept is None:
            self.present_bytes += length
        else:
            self.in_memory[number] = kept
        for each, border in checked.waiting.items():
            if border.position <= each * self.chunk_bytes or each not in self._waiting:  # otherwise more of that chunk has to be verified
                self._waiting[each] = border
        self._waiting.pop(number, None)
        for position, offset in checked.heads.items():
            self._heads.setdefault(position // self.chunk_bytes, {})[position] = offset
        for each, border in checked.borders.items():
            self._borders[each] = border
            if each not in self.present:  # it was dropped from memory meanwhile
                self._waiting[each] = border

    def drop_from_memory(self, number: int) -> None:
        """Forgets a chunk that is only in memory."""
        if self.in_memory.pop(number, None) is not None:
            self.present.discard(number)
            # Other bytes may come the next time, so no walk may end at a batch of this chunk that was verified.
            self._heads.pop(number, None)
            if number in self._borders:
                self._waiting[number] = self._borders[number]

    # -- reading ---------------------------------------------------------------------------------------------------------

    def read(self, position: int, length: int) -> bytes | None:
        """Returns bytes that are present, from memory; None if all of them are on the disk."""
        if not self.in_memory or not any(number in self.in_memory for number in self._numbers(position, position + length)):
            return None
        return b"".join(self._pieces(position, position + length, self.in_memory, self.file))

    def _pieces(self, position: int, end: int, in_memory: Mapping[int, bytes | memoryview], file: File | None) -> list[bytes | memoryview]:
        pieces: list[bytes | memoryview] = []
        while position < end:
            number = position // self.chunk_bytes
            stop = min(end, (number + 1) * self.chunk_bytes)
            kept = in_memory.get(number)
            at = number * self.chunk_bytes
            if kept is not None:
                pieces.append(kept[position - at : stop - at])
            elif file is not None:
                pieces.append(file.pread(stop - position, position))
            position = stop
        return pieces

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
