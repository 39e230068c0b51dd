"""Checking the indexes of a segment and making them anew: methods of `Segment`, kept in a file of their own.

Indexes hold nothing that the log file does not say; recovery rebuilds them while it checks batches, and so does whoever finds one wrong.
"""

import logging
from typing import TYPE_CHECKING

from protocol.records.batch import BatchHeader
from storage.disk.file_names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from storage.errors import CorruptIndex
from storage.segment.batch_scan import batches_from
from storage.segment.offset_index import OffsetIndex
from storage.segment.time_index import TimeIndex, TimestampOffset

if TYPE_CHECKING:
    from storage.segment.segment import Segment

log = logging.getLogger(__name__)


def check_indexes(self: "Segment") -> None:
    """Rebuilds the indexes if they cannot be this segment's."""
    try:
        self.offset_index.check(self.size)
        self.time_index.check()
        if self.size and not self.time_index.entries and self.first_batch_timestamp >= 0:
            raise CorruptIndex(self.time_index.path, "it is empty, the segment is not")
    except CorruptIndex as error:
        log.warning("%s; the indexes are rebuilt from the log file", error)
        self.rebuild_indexes()


def find_max_timestamp(self: "Segment") -> None:
    """Looks for the largest timestamp in the batches behind the last time index entry."""
    timestamp, offset = self.time_index.last_entry
    for _, header in batches_from(self.file, self.index_position(offset), self.size):
        if header.max_timestamp > timestamp:
            timestamp, offset = header.max_timestamp, header.last_offset
    self._max_timestamp = TimestampOffset(timestamp, offset)


def rebuild_indexes(self: "Segment") -> None:
    """Writes offset and time index anew from the batch headers. Raises protocol's RecordFormatError where those are damaged."""
    has_room = self.offset_index.has_room
    self.begin_rebuild()
    last_entry = 0
    try:
        for position, header in batches_from(self.file, 0, self.size):
            last_entry = self.index_batch(position, header, last_entry)
    finally:
        self.finish_rebuild()
        if has_room:
            self.become_active()


def begin_indexes(self: "Segment") -> None:
    """Offset and time index of a new segment, empty; their files are not made yet."""
    _replace_indexes(self)
    self.offset_index.begin()
    self.time_index.begin()
    self._max_timestamp = self.time_index.last_entry


def begin_rebuild(self: "Segment") -> None:
    """Empties offset and time index; an index file of a wrong size or kind is replaced."""
    _replace_indexes(self)
    self.offset_index.reset()
    self.time_index.reset()
    self._max_timestamp = self.time_index.last_entry


def _replace_indexes(self: "Segment") -> None:
    # Taken for empty if not yet open: to look at the last entry of a preallocated file costs a page fault of 60 µs.
    settings = self._settings
    if self._offset_index is None:
        path = self._path(OFFSET_INDEX_SUFFIX)
        self._offset_index = OffsetIndex(self.filesystem, path, self.base_offset, settings.index_bytes, 0)
    if self._time_index is None:
        self._time_index = TimeIndex(self.filesystem, self._path(TIME_INDEX_SUFFIX), self.base_offset, settings.index_bytes, 0)


def index_batch(self: "Segment", position: int, header: BatchHeader, last_entry: int) -> int:
    """Takes the batch at `position` into the indexes if it is far enough from `last_entry`; returns where the last entry is."""
    last_max = self.max_timestamp
    if header.max_timestamp > last_max.timestamp:
        last_max = self._max_timestamp = TimestampOffset(header.max_timestamp, header.last_offset)
    if position - last_entry > self._settings.index_interval_bytes:
        self.offset_index.append(header.last_offset, position)
        self.time_index.maybe_append(last_max)
        return position
    return last_entry


def finish_rebuild(self: "Segment") -> None:
    """Completes and trims the indexes."""
    self.offset_index.trim()
    self.complete_time_index()
    self.time_index.trim()
