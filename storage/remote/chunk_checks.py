"""Verifies the batches of one chunk of a remote segment, and those across its borders, from what a `ChunkCheck` says about the others.

The check keeps nothing, so any process can do it: the one that has fetched the chunk also writes it. `ChunkFile` makes the check on the
event loop, and takes in what was `Checked`. A batch across a border is verified when the chunks on both sides are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import NamedTuple

from ottla.protocol.records.batch import ATTRIBUTES_OFFSET, CURRENT_MAGIC, HEADER_SIZE, LOG_OVERHEAD, BatchHeader
from ottla.protocol.records.checksum import crc32c
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.yielding import PacedYield
from ottla.storage.remote.batch_checks import CorruptChunk, check_header, wrong_checksum
from ottla.storage.remote.entries import SegmentEntry

_READ_BYTES = 1 << 20
_FRONT = Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, checksum, attributes and last offset delta of a batch."""

Around = Callable[[int, int], bytes]
"""Reads bytes of the segment that are present, outside of the new chunk: so many, from a position on. May raise OSError."""


class Border(NamedTuple):
    """The position of a batch that is verified with a later chunk, and the offset behind the batch before it."""

    position: int
    next_offset: int


class ChunkCheck(NamedTuple):
    """The knowledge of a chunk that will be verified, and of the chunks around it."""

    entry: SegmentEntry
    chunk_bytes: int
    number: int
    first_batch: int | None
    """The position of a batch that begins in the chunk, by the index."""
    border: Border | None
    """The batch before the chunk whose verification needs it; None if the chunk before was not verified up to here."""
    missing_from_border: int
    """The first chunk from that of the `border` on that is not present; the new one counts as present."""
    missing: int
    """The first chunk behind the new one that is not present."""
    heads: Mapping[int, int]
    """Position of a batch from which an earlier walk began -> its base offset: those that the walks of this check may meet."""

    @property
    def position(self) -> int:
        """The position of the chunk in the segment."""
        return self.number * self.chunk_bytes

    @property
    def length(self) -> int:
        """The bytes that the chunk has to have."""
        return min(self.chunk_bytes, self.entry.size - self.position)


class Checked(NamedTuple):
    """The findings of a check, which later checks have to know."""

    heads: Mapping[int, int]
    """As in ChunkCheck: what is new."""
    waiting: Mapping[int, Border]
    """Number of a chunk that is not there -> the batch whose verification needs it."""
    borders: Mapping[int, Border]
    """Number of a chunk -> the batch at its beginning, which was verified."""


def check_chunk(data: bytes | memoryview, check: ChunkCheck, around: Around) -> Checked:
    """Verifies a chunk. Blocks. Raises CorruptChunk: this chunk or one before it is wrong. Raises the OSError of `around`."""
    if len(data) != check.length:
        raise CorruptChunk(f"chunk {check.number} has {len(data)} bytes instead of {check.length}")
    walks = _Walks(memoryview(data), check, around)
    border = check.border
    if (border is None or walks.walk(border, check.missing_from_border, False) < check.number) and check.first_batch is not None:
        walks.walk(Border(check.first_batch, check.entry.start_offset), check.missing, True)
    return Checked(walks.heads, walks.waiting, walks.borders)


def write_chunk(filesystem: FileSystem, path: str, data: bytes | memoryview, check: ChunkCheck) -> Checked:
    """Verifies a chunk, and writes it to its place in the file of its segment, which exists and has the chunks around it.

    Blocks. Raises CorruptChunk, and OSError if the disk refuses the chunk, or the file is gone.
    """
    file = filesystem.open(path)
    try:
        checked = check_chunk(data, check, lambda position, length: file.pread(length, position))
        file.pwrite(data, check.position)
    finally:
        file.close()
    return checked


class _Walks:
    """The walks of one check from batch to batch."""

    def __init__(self, data: memoryview, check: ChunkCheck, around: Around) -> None:
        self._data = data
        self._at = check.position
        self._entry = check.entry
        self._size = check.entry.size
        self._chunk_bytes = check.chunk_bytes
        self._around = around
        self._all_heads = dict(check.heads)
        self.heads: dict[int, int] = {}
        self.waiting: dict[int, Border] = {}
        self.borders: dict[int, Border] = {}

    def walk(self, begin: Border, missing: int, is_head: bool) -> int:
        """Verifies batches from `begin` to the chunk `missing`, or to batches that were verified before.

        Returns the number of the chunk where it ends.
        """
        maybe_yield = PacedYield()
        position, next_offset = begin
        while position < self._size:
            maybe_yield()
            is_here = self._is_here(position, min(position + HEADER_SIZE, self._size), missing)
            if is_here:
                header = self._header(position, next_offset)
                end = position + header.size
                is_here = self._is_here(position, end, missing)
            if not is_here:
                self.waiting[missing] = Border(position, next_offset)
                return missing
            self._verify(position, end, header)
            for number in range(-(-position // self._chunk_bytes), (end - 1) // self._chunk_bytes + 1):
                self.borders[number] = Border(position, next_offset)
            if is_head:
                self.heads[position] = self._all_heads[position] = header.base_offset
                is_head = False
            position, next_offset = self._walk_inside(end, header.next_offset, maybe_yield)
            head = self._all_heads.get(position)
            if head is not None:
                if head < next_offset:
                    raise CorruptChunk(f"offset {head} follows {next_offset - 1} at byte {position}")
                break
        return position // self._chunk_bytes

    def _walk_inside(self, position: int, next_offset: int, maybe_yield: PacedYield) -> tuple[int, int]:
        """Verifies the batches from `position` on that the new chunk has as a whole, neither at its beginning nor over its end.

        Nearly all batches are verified here, for a third of the time in which the interpreter is held. Stops before a head, and before
        what is not right, and returns where.
        """
        data, heads, end_offset, epochs = self._data, self._all_heads, self._entry.end_offset, self._entry.leader_epochs
        at, whole = position - self._at, len(data) - HEADER_SIZE
        while 0 < at <= whole and at + self._at not in heads:
            maybe_yield()
            base_offset, length, epoch, magic, crc, _, last_delta = _FRONT.unpack_from(data, at)
            end = at + LOG_OVERHEAD + length
            last_offset = base_offset + last_delta
            if magic != CURRENT_MAGIC or not at + HEADER_SIZE <= end <= len(data) or epoch not in epochs:
                break
            if not next_offset <= base_offset <= last_offset <= end_offset or crc32c(data[at + ATTRIBUTES_OFFSET : end]) != crc:
                break
            at, next_offset = end, last_offset + 1
        return self._at + at, next_offset

    def _is_here(self, start: int, end: int, missing: int) -> bool:
        """Whether all bytes [start, end) are present: the walk has not passed the chunk `missing`, and all before that are."""
        if start >= self._at and end <= self._at + len(self._data):
            return True
        return not start // self._chunk_bytes <= missing <= (end - 1) // self._chunk_bytes

    def _header(self, position: int, next_offset: int) -> BatchHeader:
        """Returns the header of the batch at `position`, and checks what its checksum does not cover: length, offsets and epoch."""
        return check_header(self._read(position, min(HEADER_SIZE, self._size - position)), position, next_offset, self._entry)

    def _verify(self, position: int, end: int, header: BatchHeader) -> None:
        crc = 0
        for at in range(position + ATTRIBUTES_OFFSET, end, _READ_BYTES):
            crc = crc32c(self._read(at, min(_READ_BYTES, end - at)), crc)
        if crc != header.crc:
            raise wrong_checksum(position)

    def _read(self, position: int, length: int) -> bytes | memoryview:
        """Returns bytes of the new chunk, of those around it, or of both."""
        first, last = position - self._at, position + length - self._at
        if first >= 0 and last <= len(self._data):
            return self._data[first:last]
        before = self._around_exactly(position, min(length, -first)) if first < 0 else b""
        inside = self._data[max(first, 0) : max(last, 0)]
        behind_at = max(position, self._at + len(self._data))
        behind = self._around_exactly(behind_at, position + length - behind_at) if behind_at < position + length else b""
        return b"".join((before, inside, behind))

    def _around_exactly(self, position: int, length: int) -> bytes:
        data = self._around(position, length)
        if len(data) != length:
            raise CorruptChunk(f"{len(data)} bytes at byte {position} of the cached file, instead of {length}")
        return data
