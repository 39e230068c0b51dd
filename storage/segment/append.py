"""Appending to a segment: methods of `Segment`, kept in a file of their own.

The hottest code of the storage floor: `append` runs on the event loop for every produced batch.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from protocol.records.batch import Buffer
from storage.segment.offset_index import MAX_RELATIVE_OFFSET
from storage.segment.time_index import TimestampOffset, timestamp_offset

if TYPE_CHECKING:
    from storage.segment.segment import Segment

log = logging.getLogger(__name__)

IndexEntry = tuple[int, int, TimestampOffset]
"""Of a batch: its last offset, its position, the largest timestamp up to its end."""


def should_roll(self: "Segment", length: int, last_offset: int, max_timestamp: int, now_ms: int, entries: int = 1) -> bool:
    """Whether batches of `length` bytes up to `last_offset`, with so many index entries, belong into a new segment."""
    size = self.size
    settings = self._settings
    if size > settings.segment_bytes - length or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
        return True
    if size:
        first = self.rolling_based_timestamp or self.first_batch_timestamp
        waited = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        if waited > settings.roll_after_ms - self.roll_jitter_ms:
            return True
    # Calling the properties, and is_full, would take longer than all else here.
    offset_index = self._offset_index or self.offset_index
    time_index = self._time_index or self.time_index
    return offset_index.entries + entries > offset_index.full_at or time_index.entries + entries > time_index.full_at


def append(self: "Segment", data: Buffer, length: int, last_offset: int, max_timestamp: int, offset_of_max_timestamp: int) -> None:
    """Writes whole batches of `length` bytes with one system call, and an index entry when it is time.

    Changes nothing when it raises OSError: bytes of a torn write are cut off again, or lie where the next append will write.
    """
    position = self.size
    # What has to be read is read before anything is written.
    file = self._file
    if file is None:
        file = self.file
    last_max = self._max_timestamp
    if last_max is None:
        last_max = self.max_timestamp
    try:
        file.pwrite(data, position)
        if max_timestamp > last_max[0]:
            last_max = self._max_timestamp = timestamp_offset((max_timestamp, offset_of_max_timestamp))
        since_last_entry = self.bytes_since_last_index_entry
        if since_last_entry > self._settings.index_interval_bytes:
            self._append_to_indexes(((last_offset, position, last_max),))
            since_last_entry = 0
    except OSError:
        self._cut_torn_write(position)
        raise
    if position == 0:
        self.rolling_based_timestamp = max_timestamp
    self.size = position + length
    self.bytes_since_last_index_entry = since_last_entry + length


def append_several(self: "Segment", batches: Sequence[memoryview], placed: Sequence[tuple[int, int, int]]) -> None:
    """Writes batches behind one another with one system call, and the index entries that `append` would have made one by one.

    `placed` holds (length, last offset, largest timestamp) of each. The segment is not empty. As `append` when it raises OSError.
    """
    start = self.size
    file = self._file or self.file
    entries, end, since_last_entry, last_max = _entries_of(
        placed,
        start,
        self.bytes_since_last_index_entry,
        self._settings.index_interval_bytes,
        self._max_timestamp or self.max_timestamp,
    )
    try:
        file.pwritev(batches, end - start, start)
        if entries:
            self._append_to_indexes(entries)
    except OSError:
        self._cut_torn_write(start)
        raise
    self._max_timestamp = last_max
    self.size = end
    self.bytes_since_last_index_entry = since_last_entry


def _entries_of(
    placed: Sequence[tuple[int, int, int]],
    position: int,
    since_last_entry: int,
    interval: int,
    last_max: TimestampOffset,
) -> tuple[list[IndexEntry], int, int, TimestampOffset]:
    """The index entries of batches that stand behind one another from `position` on; where these end, how many bytes stand behind the last
    entry then, and the largest timestamp."""
    entries = []
    for length, last_offset, max_timestamp in placed:
        if max_timestamp > last_max[0]:
            last_max = timestamp_offset((max_timestamp, last_offset))
        if since_last_entry > interval:
            entries.append((last_offset, position, last_max))
            since_last_entry = 0
        position += length
        since_last_entry += length
    return entries, position, since_last_entry, last_max


def append_to_indexes(self: "Segment", added: Sequence[IndexEntry]) -> None:
    """One or more entries. Takes all back when one cannot be written."""
    offset_index = self._offset_index or self.offset_index
    time_index = self._time_index or self.time_index
    entries = offset_index.entries, time_index.entries
    try:
        offset_index.extend(added)
        if added[-1][2][0] > time_index.last_entry[0]:
            for _, _, last_max in added:
                time_index.maybe_append(last_max)
    except OSError:
        # The entries are still in memory: what could not be written is taken back without touching the disk.
        offset_index.truncate_to_entries(entries[0])
        time_index.truncate_to_entries(entries[1])
        raise


def cut_torn_write(self: "Segment", position: int) -> None:
    self.has_slack = True
    try:
        self.file.truncate(position)
    except OSError as error:
        log.error("%s: cannot cut a torn write at byte %d: %s; the next start will", self.path, position, error)
