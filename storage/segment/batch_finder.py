"""Finds where batches begin and end in the file of a segment, with as few reads as can be.

The offset index gives a place to begin. From there on headers are looked at, many in one read: a read costs more than what it brings. What
was read of the batches that are returned is kept, so that it need not be read again to be sent.

An index that leads to a place where no batch begins is not this segment's. It is rebuilt, once, and asked again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from protocol.cursors import fields
from protocol.records.batch import CURRENT_MAGIC, HEADER_SIZE, LOG_OVERHEAD, next_batch_size
from protocol.records.errors import RecordFormatError
from storage.segment.limits import BOUNDS_SIZE, CHUNK_BYTES, GAP_BYTES, INLINE_BYTES, PACKET_BYTES, PAGE_BYTES

if TYPE_CHECKING:
    from storage.disk.filesystem import File
    from storage.segment.cold_lookups import UnwaitingFile
    from storage.segment.offset_index import OffsetIndex
    from storage.segment.segment import Segment

log = logging.getLogger(__name__)


class BatchFinder:
    """Looks for batches in one segment. After `locate` or `stand_at` it stands at a batch, which the attributes describe.

    Reads raise OSError, NotCached, and RecordFormatError where no batch can begin.
    """

    __slots__ = (
        "_base_offset",
        "_data",
        "_data_at",
        "_file",
        "_first",
        "_first_at",
        "_index",
        "_size",
        "base_offset",
        "end",
        "last_offset",
        "next_offset",
        "position",
        "segment",
    )

    def __init__(self, segment: Segment, file: File | UnwaitingFile, index: OffsetIndex, base_offset: int, size: int) -> None:
        """`file`, `index`, `base_offset` and `size` are those of the segment."""
        self.segment = segment
        self._file = file
        self._index = index
        self._base_offset = base_offset
        self._size = size
        self._data = b""
        self._data_at = 0
        self._first = b""  # what was read before the last `fit`
        self._first_at = 0
        self.position = 0
        """The byte at which the batch begins."""
        self.end = 0
        """The byte at which it ends."""
        self.base_offset = -1
        self.last_offset = -1
        self.next_offset = -1
        """The offset that follows the batches of the last `fit`."""

    def stand_at(self, position: int, length: int) -> bool:
        """Move to the batch at `position`; False if there is no whole one. Reads `length` bytes unless its header was read before."""
        at = position - self._data_at
        if at < 0 or at + BOUNDS_SIZE > len(self._data):
            left = self._size - position
            if left < HEADER_SIZE:
                return False
            self._data = self._file.pread(length if length < left else left, position)
            self._data_at = position
            at = 0
            if len(self._data) < BOUNDS_SIZE:
                return False
        base_offset, batch_length, magic, last_offset_delta = fields.read_batch_bounds(self._data, at)
        if magic != CURRENT_MAGIC or batch_length < HEADER_SIZE - LOG_OVERHEAD:
            next_batch_size(self._data, at, at + self._size - position)  # says what is wrong
            return False
        end = position + batch_length + LOG_OVERHEAD
        if end > self._size:
            return False
        self.position = position
        self.end = end
        self.base_offset = base_offset
        self.last_offset = base_offset + last_offset_delta
        return True

    def locate(self, offset: int, ahead: int) -> bool:
        """Move to the first batch that ends at or after `offset`; False if all end before. Up to `ahead` bytes of it are read along."""
        entry_offset, position, next_entry_offset, next_position = self._index.bracket(offset)
        distance = next_position - position if next_position >= 0 else CHUNK_BYTES
        if distance > GAP_BYTES:
            # Large batches have an index entry each, and one header is all that has to be read.
            if not self._is_entry(next_entry_offset, next_position, ahead):
                return self._locate_anew(offset, ahead)
            if self.base_offset <= offset <= self.last_offset:
                return True
            distance = CHUNK_BYTES
        if position and not self._is_entry(entry_offset, position, distance + ahead):
            return self._locate_anew(offset, ahead)
        return self._walk(position, offset, distance + ahead)

    def indexed_position(self, offset: int) -> int:
        """Where to begin looking for `offset`: the beginning of a batch, as the index says."""
        entry_offset, position = self._index.lookup(offset)
        if position and not self._is_entry(entry_offset, position, HEADER_SIZE):
            self.segment.rebuild_indexes()
            position = self._index.lookup(offset).position
        return position

    def _locate_anew(self, offset: int, ahead: int) -> bool:
        self.segment.rebuild_indexes()
        return self._walk(self._index.lookup(offset).position, offset, CHUNK_BYTES + ahead)

    def _walk(self, position: int, offset: int, length: int) -> bool:
        while self.stand_at(position, length):
            if self.last_offset >= offset:
                return True
            # Behind a batch larger than a chunk there is little use in more than the next header.
            length = CHUNK_BYTES if self.end - position < CHUNK_BYTES else HEADER_SIZE
            position = self.end
        return False

    def _is_entry(self, entry_offset: int, position: int, length: int) -> bool:
        """Move to the batch that an entry of the index leads to; False if none is there.

        The entry names the last offset of that batch, or of one that was appended together with it.
        """
        try:
            is_batch = position > 0 and self.stand_at(position, length)
        except RecordFormatError:
            is_batch = False
        if is_batch and self._base_offset <= self.base_offset <= self.last_offset <= entry_offset:
            return True
        log.warning(
            "%s says that offset %d is at byte %d, where it is not; rebuilt from the log file", self._index.path, entry_offset, position
        )
        return False

    def fit(self, max_bytes: int) -> int:
        """How many bytes the whole batches take that end within `max_bytes`, from the one that it stands at; 0 if not even that does.

        `next_offset` follows them. The index knows an end near by: more headers are read only if that gives up more than a quarter of the
        room.
        """
        self._first, self._first_at = self._data, self._data_at
        start, end = self.position, self.end
        cut = start + max_bytes
        if end > cut:
            return 0
        next_offset = self.last_offset + 1
        if cut - self._data_at > len(self._data):
            entry_offset, position = self._index.lookup_position(cut)
            if position > end:
                if self._is_entry(entry_offset, position, CHUNK_BYTES):
                    end, next_offset = position, self.base_offset
                else:
                    self.segment.rebuild_indexes()
        while (self.has_read(end) or cut - end > max_bytes // 4) and self.stand_at(end, CHUNK_BYTES) and self.end <= cut:
            end, next_offset = self.end, self.last_offset + 1
        self.next_offset = next_offset
        return end - start

    def has_read(self, position: int) -> bool:
        """Whether the header at `position` was read."""
        return self._data_at <= position and position + BOUNDS_SIZE <= self._data_at + len(self._data)

    def read_of(self, position: int, length: int) -> bytes | memoryview | None:
        """The bytes of a region that were read already, if these are all of a small one, or a large one's up to the next page.

        Those are sent with what stands before the region, and the rest leaves as one packet of whole pages.
        """
        data, at = self._data, position - self._data_at
        if at < 0:
            data, at = self._first, position - self._first_at
        wanted = length if length <= INLINE_BYTES else PAGE_BYTES - position % PAGE_BYTES
        if at < 0 or at + wanted > len(data) or (length > INLINE_BYTES and (wanted == PAGE_BYTES or length - wanted > PACKET_BYTES)):
            return None
        return memoryview(data)[at : at + wanted] if wanted > PAGE_BYTES else data[at : at + wanted]
