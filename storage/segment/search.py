"""Finding things in a segment: methods of `Segment`, kept in a file of their own.

An index gives a place to begin, headers are read from there on. An index that leads to a place where no batch begins is rebuilt.
"""

import logging
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from protocol.compiled import compiled
from protocol.records.batch import CURRENT_MAGIC, HEADER_SIZE
from protocol.records.reader import iter_records
from storage.disk.filesystem import File
from storage.disk.real_file import RealFile
from storage.segment.batch_scan import batches_from
from storage.segment.cold_lookups import UnwaitingFile
from storage.segment.file_region import FileRegion

if TYPE_CHECKING:
    from storage.segment.segment import Segment

log = logging.getLogger(__name__)

_BOUNDS = struct.Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
BOUNDS_SIZE = _BOUNDS.size
unpack_bounds = _BOUNDS.unpack
_NO_BATCH = (-1, -1)

_native: Final = compiled("storage.native")


class RecordPosition(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


def locate(self: "Segment", offset: int, file: File | UnwaitingFile | None = None) -> int | None:
    """Where the first batch that ends at or after `offset` begins; None if all end before. `file` is how to read; as ever if None."""
    if file is None:
        file = self.file
    entry_offset, position, next_entry_offset, next_position = self.offset_index.bracket(offset)
    if next_position != -1:
        # Large batches have an index entry each, and one header is all that has to be read.
        base_offset, last_offset = _batch_of(self, file, next_entry_offset, next_position)
        if base_offset <= offset <= last_offset:
            return next_position
        if base_offset < 0:
            return _locate_anew(self, file, offset)
    if position and _batch_of(self, file, entry_offset, position)[0] < 0:
        return _locate_anew(self, file, offset)
    return _scan(self, file, position, offset)


def _locate_anew(self: "Segment", file: File | UnwaitingFile, offset: int) -> int | None:
    self.rebuild_indexes()
    return _scan(self, file, self.offset_index.lookup(offset).position, offset)


def _scan(self: "Segment", file: File | UnwaitingFile, position: int, offset: int) -> int | None:
    for found, header in batches_from(file, position, self.size):
        if header.last_offset >= offset:
            return found
    return None


def index_position(self: "Segment", offset: int, file: File | UnwaitingFile | None = None) -> int:
    """Where to begin looking for `offset`: the beginning of a batch, as the index says.

    An index that leads to any other place is not this segment's, and is rebuilt.
    """
    entry = self.offset_index.lookup(offset)
    if entry.position and _batch_of(self, self.file if file is None else file, *entry)[0] < 0:
        self.rebuild_indexes()
        return self.offset_index.lookup(offset).position
    return entry.position


def _batch_of(self: "Segment", file: File | UnwaitingFile, entry_offset: int, position: int) -> tuple[int, int]:
    """First and last offset of the batch that an index entry leads to, (-1, -1) if there is none.

    The entry names the last offset of that batch, or of one that was appended together with it.
    """
    size = self.size
    if 0 < position <= size - HEADER_SIZE:
        # Only what is needed of a header, for a lookup does this once or twice (1.0 µs; all of it costs 2.5).
        base_offset, length, magic, last_offset_delta = unpack_bounds(file.pread(BOUNDS_SIZE, position))
        last_offset: int = base_offset + last_offset_delta
        if magic == CURRENT_MAGIC and self.base_offset <= base_offset <= last_offset <= entry_offset and position + length < size:
            return base_offset, last_offset
    log.warning(
        "%s says that offset %d is at byte %d, where it is not; rebuilt from the log file",
        self.offset_index.path,
        entry_offset,
        position,
    )
    return _NO_BATCH


def whole_batches_end(self: "Segment", position: int, cut: int, file: File | UnwaitingFile | None = None) -> tuple[int, int]:
    """Of the batches from `position` on, some that end at or before `cut`: where they end, and the offset that follows.

    (`position`, -1) if not even the first does. The index knows an end near `cut`; when that gives up more than a quarter of the room,
    the headers behind it are read too.
    """
    if file is None:
        file = self.file
    end, next_offset = position, -1
    entry_offset, entry_position = self.offset_index.lookup_position(cut)
    if entry_position > position:
        base_offset, _ = _batch_of(self, file, entry_offset, entry_position)
        if base_offset < 0:
            self.rebuild_indexes()
        else:
            end, next_offset = entry_position, base_offset
            if cut - end <= (cut - position) // 4:
                return end, next_offset
    for found, header in batches_from(file, end, self.size):
        if found + header.size > cut:
            break
        end, next_offset = found + header.size, header.next_offset
    return end, next_offset


def between_entries(self: "Segment", offset: int, max_bytes: int) -> tuple[FileRegion, int] | None:
    """The batch with `offset` and those behind it, and the offset that follows; None unless entries of the index lead to both ends.

    What `locate` and `whole_batches_end` would find, in one go, for most reads that no hint helps.
    """
    index = self._offset_index or self.offset_index
    file = self._file or self.file
    size = self.size
    if _native is not None and type(file) is RealFile:
        found: tuple[FileRegion, int] | None = _native.between_entries(
            file, *index.entries_around(offset), self.base_offset, size, offset, max_bytes
        )
        return found
    _, _, last_offset, position = index.bracket(offset)
    cut = position + max_bytes
    if position <= 0 or cut >= size:
        return None
    end_last_offset, end = index.lookup_position(cut)
    if not position < end <= size - HEADER_SIZE or cut - end > max_bytes // 4:
        return None
    first, length, magic, delta = unpack_bounds(file.pread(BOUNDS_SIZE, position))
    if magic != CURRENT_MAGIC or not self.base_offset <= first <= offset <= first + delta <= last_offset or position + length >= size:
        return None
    next_offset, length, magic, delta = unpack_bounds(file.pread(BOUNDS_SIZE, end))
    if magic != CURRENT_MAGIC or not offset < next_offset <= next_offset + delta <= end_last_offset or end + length >= size:
        return None
    return FileRegion(file, position, end - position, True), next_offset


def read_end(self: "Segment") -> tuple[int, int]:
    """The offset after the last whole batch, and where that batch ends."""
    next_offset = self.base_offset
    end = 0
    for position, header in batches_from(self.file, self.index_position(self.offset_index.last_offset), self.size):
        next_offset = header.next_offset
        end = position + header.size
    return next_offset, end


def find_by_timestamp(
    self: "Segment", timestamp_ms: int, starting_offset: int, file: File | UnwaitingFile | None = None
) -> RecordPosition | None:
    """The first record at or after `starting_offset` whose timestamp is at least `timestamp_ms`. Decompresses what it must."""
    if file is None:
        file = self.file
    entry = self.time_index.lookup(timestamp_ms)
    position = self.index_position(max(entry.offset, starting_offset), file)
    for found, header in batches_from(file, position, self.size):
        if header.max_timestamp >= timestamp_ms:
            for record in iter_records(file.pread(header.size, found), 0, header):
                if record.timestamp >= timestamp_ms and record.offset >= starting_offset:
                    return RecordPosition(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def record_of_max_timestamp(self: "Segment", file: File | UnwaitingFile | None = None) -> RecordPosition | None:
    """The first record that has the segment's largest timestamp."""
    if file is None:
        file = self.file
    timestamp, offset = self.max_timestamp
    for found, header in batches_from(file, self.index_position(offset, file), self.size):
        if header.max_timestamp == timestamp:
            for record in iter_records(file.pread(header.size, found), 0, header):
                if record.timestamp == timestamp:
                    return RecordPosition(timestamp, record.offset, header.partition_leader_epoch)
            return None
    return None
