"""One segment of a log: a file of batches, the indexes beside it, and the largest timestamp in it.

Owned by a `PartitionLog`; the last segment of a log is appended to, the others are read and one day deleted. Files and indexes of segments
that nobody reads stay closed, so opening a log costs a few `stat` calls for each.

Invariants: `size` counts whole batches; bytes behind it (torn by a failed write, or preallocated) are not part of the log, and the next
append overwrites them. Every method may raise OSError.
"""

import logging
import sys
from contextlib import suppress

from storage.disk.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from storage.disk.filesystem import File, FileSystem
from storage.segment import append as segment_append
from storage.segment import creation as segment_creation
from storage.segment import indexing as segment_indexing
from storage.segment import search as segment_search
from storage.segment.batch_scan import header_at
from storage.segment.log_settings import LogSettings
from storage.segment.offset_index import OffsetIndex
from storage.segment.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from storage.segment.transaction_index import TransactionIndex

log = logging.getLogger(__name__)

FIRST_BYTES = 4 * 1024 * 1024
"""By how much a segment grows before disk space is set aside for more: see `reservations`."""
NEVER = sys.maxsize


class Segment:
    """The batches from `base_offset` up to the next segment's."""

    __slots__ = (
        "_directory",
        "_file",
        "_max_timestamp",
        "_offset_index",
        "_settings",
        "_suffix",
        "_time_index",
        "_transaction_index",
        "base_offset",
        "bytes_since_last_index_entry",
        "created_ms",
        "filesystem",
        "has_slack",
        "reserve_at",
        "reserved_bytes",
        "roll_jitter_ms",
        "rolling_based_timestamp",
        "size",
    )

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        base_offset: int,
        settings: LogSettings,
        *,
        now_ms: int,
        roll_jitter_ms: int = 0,
        suffix: str = "",
        size: int | None = None,
    ) -> None:
        """A segment whose files exist; `size` is asked of the file system unless given."""
        self.filesystem = filesystem
        self._directory = directory
        self._settings = settings
        self._suffix = suffix
        self.base_offset = base_offset
        self.created_ms = now_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.rolling_based_timestamp: int | None = None
        self.bytes_since_last_index_entry = 0
        self.has_slack = False  # whether the file may have bytes behind `size`
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None
        self._max_timestamp: TimestampOffset | None = None
        self.size = filesystem.size(self.path) if size is None else size
        self.reserve_at = self.size + FIRST_BYTES  # the size at which `Reservations` is asked for more
        self.reserved_bytes = 0  # what it had set aside last

    create = classmethod(segment_creation.create)

    # ---- the files

    @property
    def path(self) -> str:
        return self._path(LOG_SUFFIX)

    @property
    def paths(self) -> list[str]:
        """All files a segment may have; the transaction index exists only if there was an aborted transaction."""
        return [self._path(suffix) for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)]

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self.base_offset, suffix)}{self._suffix}"

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self.filesystem.open(self.path)
        return file

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            path = self._path(OFFSET_INDEX_SUFFIX)
            index = OffsetIndex(self.filesystem, path, self.base_offset, self._settings.index_bytes, self._size_of(path))
            self._offset_index = index
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            path = self._path(TIME_INDEX_SUFFIX)
            index = TimeIndex(self.filesystem, path, self.base_offset, self._settings.index_bytes, self._size_of(path))
            self._time_index = index
        return index

    @property
    def transaction_index(self) -> TransactionIndex:
        index = self._transaction_index
        if index is None:
            path = self._path(TRANSACTION_INDEX_SUFFIX)
            size = self.filesystem.size(path) if self.filesystem.exists(path) else None
            index = self._transaction_index = TransactionIndex(self.filesystem, path, self.base_offset, size)
        return index

    def _size_of(self, path: str) -> int:
        return self.filesystem.size(path) if self.filesystem.exists(path) else 0

    # ---- timestamps

    @property
    def knows_max_timestamp(self) -> bool:
        """Whether `max_timestamp` needs no file."""
        return self._max_timestamp is not None

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp and the last offset of its batch; (-1, base offset) if no batch has one."""
        found = self._max_timestamp
        if found is None:
            self.check_indexes()
            found = self._max_timestamp = self.time_index.last_entry
        return found

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp; when the file was last written if no batch has one. Retention by time goes by it."""
        timestamp = self.max_timestamp.timestamp
        return timestamp if timestamp >= 0 else self.filesystem.modified_ms(self.path)

    @property
    def first_batch_timestamp(self) -> int:
        """The first batch's largest timestamp, -1 in an empty segment."""
        timestamp = self.rolling_based_timestamp
        if timestamp is None:
            header = header_at(self.file, 0, self.size)
            if header is None:
                return NO_TIMESTAMP
            timestamp = self.rolling_based_timestamp = header.max_timestamp
        return timestamp

    # ---- appending

    should_roll = segment_append.should_roll
    append = segment_append.append
    append_several = segment_append.append_several
    _append_to_indexes = segment_append.append_to_indexes
    _cut_torn_write = segment_append.cut_torn_write

    def allocate_indexes(self) -> None:
        """Makes the index files that `create` left for later."""
        self.offset_index.allocate()
        self.time_index.allocate()

    def become_active(self) -> None:
        """Makes room in the indexes for appends, and lets go of what a broker that was killed had reserved."""
        self.offset_index.make_room()
        self.time_index.make_room()
        if self.size >= FIRST_BYTES:
            self.give_back()

    def become_inactive(self) -> None:
        """Completes and trims the indexes, and lets go of what was preallocated or reserved."""
        self.complete_time_index()
        self.offset_index.trim()
        self.time_index.trim()
        self.trim()
        self.give_back()

    def complete_time_index(self) -> None:
        """Sees to it that the last entry is the segment's largest timestamp."""
        self.time_index.maybe_append(self.max_timestamp)

    def trim(self) -> None:
        """Cuts the file behind its last batch."""
        if self.has_slack:
            self.file.truncate(self.size)
            self.has_slack = False

    def give_back(self) -> None:
        """Lets go of disk space that is reserved behind the end. Nobody may be cutting the file."""
        self.file.give_back()
        self.reserved_bytes = 0
        self.reserve_at = self.size + FIRST_BYTES

    locate = segment_search.locate
    index_position = segment_search.index_position
    whole_batches_end = segment_search.whole_batches_end
    between_entries = segment_search.between_entries
    read_end = segment_search.read_end
    find_by_timestamp = segment_search.find_by_timestamp
    record_of_max_timestamp = segment_search.record_of_max_timestamp
    check_indexes = segment_indexing.check_indexes
    rebuild_indexes = segment_indexing.rebuild_indexes
    begin_indexes = segment_indexing.begin_indexes
    begin_rebuild = segment_indexing.begin_rebuild
    index_batch = segment_indexing.index_batch
    finish_rebuild = segment_indexing.finish_rebuild
    find_max_timestamp = segment_indexing.find_max_timestamp

    # ---- cutting, rebuilding, going away

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Removes the batches that end at or after `offset`; returns how many bytes that was."""
        found = self.locate(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.become_active()
        if found is None:
            # Below the log start offset nothing need have been flushed: a power cut may have left part of a batch.
            found = self.read_end()[1]
        cut = self.size - found
        if cut:
            self.cut_at(found)
        if self.size == 0:
            self.created_ms = now_ms
            self.rolling_based_timestamp = None
        self.bytes_since_last_index_entry = 0
        self.find_max_timestamp()
        return cut

    def cut_at(self, position: int) -> None:
        """Ends the segment at byte `position`. The indexes are the caller's to mend."""
        self.file.truncate(position)
        self.size = position
        self.has_slack = False
        self.reserved_bytes = 0
        self.reserve_at = position + FIRST_BYTES

    def write_out_indexes(self) -> None:
        """Brings index entries that are still in memory into their files."""
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.write_out()

    def sync(self) -> None:
        """Makes batches and written index entries durable. Blocks; safe on a thread, for it changes nothing.

        Raises FileNotFoundError when the segment goes meanwhile.
        """
        self.file.sync()
        for path in self.paths[1:]:
            if self.filesystem.exists(path):
                file = self.filesystem.open(path)
                file.sync()
                file.close()

    def change_suffix(self, suffix: str) -> None:
        """Renames the files: `.deleted`, `.swap`, or none."""
        old = self.paths
        self._suffix = suffix
        for source, target in zip(old, self.paths, strict=True):
            with suppress(FileNotFoundError):
                self.filesystem.rename(source, target)
        self._tell_indexes_their_paths()

    def use_filesystem(self, filesystem: FileSystem) -> None:
        """From now on the files are reached through that one."""
        self.filesystem = filesystem
        for index in (self._offset_index, self._time_index, self._transaction_index):
            if index is not None:
                index.use_filesystem(filesystem)

    def move_to(self, directory: str) -> None:
        """The directory was renamed."""
        self._directory = directory
        self._tell_indexes_their_paths()

    def _tell_indexes_their_paths(self) -> None:
        if self._offset_index is not None:
            self._offset_index.path = self._path(OFFSET_INDEX_SUFFIX)
        if self._time_index is not None:
            self._time_index.path = self._path(TIME_INDEX_SUFFIX)
        if self._transaction_index is not None:
            self._transaction_index.path = self._path(TRANSACTION_INDEX_SUFFIX)

    def delete(self) -> None:
        """Removes the files. Regions of the log file that are being sent stay readable."""
        self._file = None
        self.reserved_bytes = 0
        for path in self.paths:
            if self.filesystem.exists(path):
                self.filesystem.unlink(path)

    def close(self) -> None:
        """Completes and trims what was opened, as a clean shutdown leaves it."""
        if self._max_timestamp is not None:
            self.complete_time_index()
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.trim()
        self.trim()
        if self.reserved_bytes:
            self.give_back()
        self.release()

    def close_without_writing(self) -> None:
        """Lets go of everything; the disk has failed."""
        self.reserved_bytes = 0
        self._file = None
        self._offset_index = None
        self._time_index = None

    def release(self) -> bool:
        """Closes what the next use opens again; tells whether the file was open."""
        was_open = self._file is not None
        self._file = None
        for index in (self._offset_index, self._time_index, self._transaction_index):
            if index is not None:
                index.release()
        return was_open

    def update_settings(self, settings: LogSettings) -> None:
        self._settings = settings
