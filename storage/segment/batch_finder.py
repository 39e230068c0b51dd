"""Finds the beginnings and ends of batches in the file of a segment, with as few reads as possible.

The offset index gives a starting point. From there on headers are read, many at a time: a read costs more than its bytes. The bytes read of
a returned batch are kept, so that sending it needs no second read.

If an index entry leads to a position where no batch begins, the index does not belong to the segment. Then it is rebuilt, once, and the
lookup is repeated. A lookup that may not wait ends with `DamagedIndexes`, and a thread reads the batch headers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.protocol.cursors import fields
from ottla.protocol.records.batch import CURRENT_MAGIC, HEADER_SIZE, LOG_OVERHEAD, MIN_BATCH_SIZE, next_batch_size, parse_header
from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.short_lived import short_lived
from ottla.storage.segment.cold_lookups import UnwaitingFile
from ottla.storage.segment.offset_index import OffsetIndex

if TYPE_CHECKING:
    from ottla.storage.disk.filesystem import File
    from ottla.storage.segment.segment import Segment

log = logging.getLogger(__name__)

BOUNDS_SIZE: Final = 27
"""Bytes of a batch header up to the last offset delta."""
CHUNK_BYTES: Final = 4096
"""Read size for batch headers, in bytes: about the distance between two index entries."""
GAP_BYTES: Final = 8192
"""Distance of two index entries above which a large batch is assumed between them, in bytes."""
INLINE_BYTES: Final = 16 * 1024
"""Largest region that is read and written together with the bytes before it, in bytes. Sending it separately would cost more."""
PAGE_BYTES: Final = 4096
PACKET_BYTES: Final = 16 * PAGE_BYTES
"""Bytes that the kernel splices at once."""


@short_lived
class BatchFinder:
    """Searches one segment for batches. After `locate` or `seek` the attributes describe the current batch.

    Reads raise OSError and NotCached, and RecordFormatError where no batch can begin.
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
        """`file`, `index`, `base_offset` and `size` belong to the segment."""
        self.segment = segment
        self._file = file
        self._index = index
        self._base_offset = base_offset
        self._size = size
        self._data = b""
        self._data_at = 0
        self._first = b""  # bytes that were read before the last `fit`
        self._first_at = 0
        self.position = 0
        """First byte of the batch."""
        self.end = 0
        """Byte after the batch."""
        self.base_offset = -1
        self.last_offset = -1
        self.next_offset = -1
        """Offset after the batches of the last `fit`."""

    def seek(self, position: int, length: int) -> bool:
        """Move to the batch at `position`. Returns False if no complete batch is there. Reads `length` bytes unless the header is known."""
        at = position - self._data_at
        if at < 0 or at + BOUNDS_SIZE > len(self._data):
            left = self._size - position
            if left < MIN_BATCH_SIZE:
                return False
            self._data = self._file.pread(length if length < left else left, position)
            self._data_at = position
            at = 0
            if len(self._data) < BOUNDS_SIZE:
                return self._seek_message(position, 0)
        base_offset, batch_length, magic, last_offset_delta = fields.read_batch_bounds(self._data, at)
        if magic != CURRENT_MAGIC or batch_length < HEADER_SIZE - LOG_OVERHEAD:
            return self._seek_message(position, at)
        end = position + batch_length + LOG_OVERHEAD
        if end > self._size:
            return False
        self.position = position
        self.end = end
        self.base_offset = base_offset
        self.last_offset = base_offset + last_offset_delta
        return True

    def _seek_message(self, position: int, at: int) -> bool:
        """Move to the message of format 0 or 1 at `position`, byte `at` of the bytes read. Raises the error that describes a fault."""
        size = next_batch_size(self._data, at, at + self._size - position) if len(self._data) - at >= MIN_BATCH_SIZE else None
        if size is None:
            return False
        self.position = position
        self.end = position + size
        self.base_offset = self.last_offset = parse_header(self._data, at).base_offset
        return True

    def locate(self, offset: int, ahead: int) -> bool:
        """Move to the first batch that ends at or after `offset`; False if there is none. Also reads up to `ahead` bytes of the batch."""
        entry_offset, position, next_entry_offset, next_position = self._index.bracket(offset)
        distance = next_position - position if next_position >= 0 else CHUNK_BYTES
        if distance > GAP_BYTES:
            # Each large batch has an index entry, so only one header has to be read.
            if not self._is_entry(next_entry_offset, next_position, ahead):
                return self._locate_anew(offset, ahead)
            if self.base_offset <= offset <= self.last_offset:
                return True
            distance = CHUNK_BYTES
        if position and not self._is_entry(entry_offset, position, distance + ahead):
            return self._locate_anew(offset, ahead)
        return self._walk(position, offset, distance + ahead)

    def indexed_position(self, offset: int) -> int:
        """The position from which to search for `offset`: the beginning of a batch, according to the index."""
        entry_offset, position = self._index.lookup(offset)
        if position and not self._is_entry(entry_offset, position, HEADER_SIZE):
            self.segment.rebuild_indexes(self._may_wait())
            position = self._index.lookup(offset).position
        return position

    def _locate_anew(self, offset: int, ahead: int) -> bool:
        self.segment.rebuild_indexes(self._may_wait())
        return self._walk(self._index.lookup(offset).position, offset, CHUNK_BYTES + ahead)

    def _walk(self, position: int, offset: int, length: int) -> bool:
        while self.seek(position, length):
            if self.last_offset >= offset:
                return True
            # Behind a batch larger than a chunk only the next header is worth reading.
            length = CHUNK_BYTES if self.end - position < CHUNK_BYTES else HEADER_SIZE
            position = self.end
        return False

    def _is_entry(self, entry_offset: int, position: int, length: int) -> bool:
        """Move to the batch of an index entry; False if no batch is there.

        The entry has the last offset of that batch, or of another batch in the same append.
        """
        try:
            is_batch = position > 0 and self.seek(position, length)
        except RecordFormatError:
            is_batch = False
        if is_batch and self._base_offset <= self.base_offset <= self.last_offset <= entry_offset:
            return True
        if not self.segment.is_rebuilding:
            log.warning(
                "%s: no batch at byte %d, where it has offset %d; rebuilding it from the log file", self._index.path, position, entry_offset
            )
        return False

    def _may_wait(self) -> bool:
        return not isinstance(self._file, UnwaitingFile)

    def fit(self, max_bytes: int) -> int:
        """The total size of the complete batches within `max_bytes`, from the current one on; 0 if it does not fit.

        `next_offset` becomes the offset after them. The index gives an end near the limit. More headers are read only if more than a
        quarter of `max_bytes` would remain unused.
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
                    self.segment.rebuild_indexes(self._may_wait())
        while (self.has_read(end) or cut - end > max_bytes // 4) and self.seek(end, CHUNK_BYTES) and self.end <= cut:
            end, next_offset = self.end, self.last_offset + 1
        self.next_offset = next_offset
        return end - start

    def has_read(self, position: int) -> bool:
        """Whether the header at `position` was read already."""
        return self._data_at <= position and position + BOUNDS_SIZE <= self._data_at + len(self._data)

    def read_of(self, position: int, length: int) -> bytes | memoryview | None:
        """The bytes of a region that were read already: all of a small region, or of a large one the bytes up to the next page.

        They are sent together with the bytes before the region. The rest leaves as one packet of whole pages. None if too few were read.
        """
        data, at = self._data, position - self._data_at
        if at < 0:
            data, at = self._first, position - self._first_at
        wanted = length if length <= INLINE_BYTES else PAGE_BYTES - position % PAGE_BYTES
        if at < 0 or at + wanted > len(data) or (length > INLINE_BYTES and (wanted == PAGE_BYTES or length - wanted > PACKET_BYTES)):
            return None
        return memoryview(data)[at : at + wanted] if wanted > PAGE_BYTES else data[at : at + wanted]
