"""Implements one segment of a log: a file of batches, its indexes, and the largest timestamp in it.

Owned by a `PartitionLog`. Records are appended to the last segment of a log; the others are only read, and eventually deleted. The files
and indexes of segments without readers stay closed, so opening a log costs a few `stat` calls per segment.

Invariants: `size` counts whole batches. Bytes behind it (from a torn write, or preallocated) are not part of the log, and the next append
overwrites them. Every method may raise OSError.
"""

import logging
import sys
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.protocol.records.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, Buffer
from ottla.storage.disk.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from ottla.storage.disk.filesystem import File, FileSystem
from ottla.storage.disk.yielding import no_yield
from ottla.storage.errors import CorruptIndex
from ottla.storage.segment.batch_finder import BatchFinder
from ottla.storage.segment.batch_scan import batches_from, header_at
from ottla.storage.segment.cold_lookups import UnwaitingFile
from ottla.storage.segment.index_builder import DamagedIndexes, IndexBuilder, IndexRebuild
from ottla.storage.segment.log_settings import LogSettings
from ottla.storage.segment.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from ottla.storage.segment.record_search import LATEST, FoundRecords, Wanted, candidates, first_record
from ottla.storage.segment.time_index import TimeIndex, TimestampOffset
from ottla.storage.segment.transaction_index import TransactionIndex

log = logging.getLogger(__name__)

FIRST_BYTES: Final = 4 * 1024 * 1024
"""Growth of a segment, in bytes, before disk space is reserved for more: see `reservations`."""
NEVER: Final[int] = sys.maxsize
"""An offset or a size that no log reaches."""
UNKNOWN: Final = -2
"""Timestamp of a first batch that was not read yet."""


class RecordPosition(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


class Segment:
    """The batches from `base_offset` up to the base offset of the next segment."""

    __slots__ = (
        "_directory",
        "_entries_before",
        "_file",
        "_has_staged_entries",
        "_largest_timestamp",
        "_offset_index",
        "_offset_of_largest_timestamp",
        "_rebuild",
        "_settings",
        "_staged_since_entry",
        "_staged_timestamp",
        "_staged_timestamp_offset",
        "_suffix",
        "_time_entries_before",
        "_time_index",
        "_transaction_index",
        "base_offset",
        "bytes_since_last_index_entry",
        "created_ms",
        "filesystem",
        "has_slack",
        "knows_max_timestamp",
        "reserve_at",
        "reserved_bytes",
        "roll_jitter_ms",
        "rolling_based_timestamp",
        "size",
        "staged_size",
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
        """A segment whose files exist. Without `size`, the size comes from the file system."""
        self.filesystem = filesystem
        self._directory = directory
        self._settings = settings
        self._suffix = suffix
        self.base_offset = base_offset
        self.created_ms = now_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.rolling_based_timestamp = UNKNOWN
        self.bytes_since_last_index_entry = 0
        self.has_slack = False  # whether the file may have bytes behind `size`
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None
        self._rebuild: IndexRebuild | None = None
        self.knows_max_timestamp = False
        """Whether `max_timestamp` needs no file."""
        self._largest_timestamp = self._offset_of_largest_timestamp = NO_TIMESTAMP
        self.staged_size = 0
        self._staged_since_entry = 0
        self._staged_timestamp = self._staged_timestamp_offset = NO_TIMESTAMP
        self._has_staged_entries = False
        self._entries_before = (0, 0)
        self._time_entries_before = (0, 0, 0)
        self.size: int = filesystem.size(self.path) if size is None else size
        self.reserve_at = self.size + FIRST_BYTES  # the size at which `Reservations` reserves more
        self.reserved_bytes = 0  # the amount that `Reservations` reserved last

    @classmethod
    def create(
        cls,
        filesystem: FileSystem,
        directory: str,
        base_offset: int,
        settings: LogSettings,
        *,
        now_ms: int,
        roll_jitter_ms: int = 0,
        suffix: str = "",
        file: File | None = None,
        has_index_files: bool = True,
    ) -> "Segment":
        """A new, empty segment with room in its indexes, preallocated if the topic's configuration requires it. `file` is an existing log
        file.

        Without `has_index_files` the caller calls `allocate_indexes` before the files are needed. Entries can be added at once.
        """
        if file is None:
            file = filesystem.open(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}{suffix}", create=True)
        segment = cls(filesystem, directory, base_offset, settings, now_ms=now_ms, roll_jitter_ms=roll_jitter_ms, suffix=suffix, size=0)
        segment._file = file
        if settings.preallocate:
            file.truncate(settings.segment_bytes)
            segment.has_slack = True
        if has_index_files:
            segment.begin_rebuild()
        else:
            segment.begin_indexes()
        return segment

    # ---- the files

    @property
    def path(self) -> str:
        return self.path_of(LOG_SUFFIX)

    @property
    def paths(self) -> list[str]:
        """All files that a segment may have. The transaction index exists only after an aborted transaction."""
        return [self.path_of(suffix) for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)]

    def path_of(self, suffix: str) -> str:
        """The path of the file with that suffix."""
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
            path = self.path_of(OFFSET_INDEX_SUFFIX)
            index = OffsetIndex(self.filesystem, path, self.base_offset, self._settings.index_bytes, self._size_of(path))
            self._offset_index = index
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            path = self.path_of(TIME_INDEX_SUFFIX)
            index = TimeIndex(self.filesystem, path, self.base_offset, self._settings.index_bytes, self._size_of(path))
            self._time_index = index
        return index

    @property
    def transaction_index(self) -> TransactionIndex:
        index = self._transaction_index
        if index is None:
            path = self.path_of(TRANSACTION_INDEX_SUFFIX)
            size = self.filesystem.size(path) if self.filesystem.exists(path) else None
            index = self._transaction_index = TransactionIndex(self.filesystem, path, self.base_offset, size)
        return index

    def _size_of(self, path: str) -> int:
        return self.filesystem.size(path) if self.filesystem.exists(path) else 0

    # ---- timestamps

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp and the last offset of its batch; (-1, base offset) if no batch has a timestamp."""
        if not self.knows_max_timestamp:
            self.check_indexes()
            if not self.knows_max_timestamp:
                self.note_max_timestamp(self.time_index.last_timestamp, self.time_index.last_offset)
        return TimestampOffset(self._largest_timestamp, self._offset_of_largest_timestamp)

    def note_max_timestamp(self, timestamp: int, offset: int) -> None:
        """Record the largest timestamp of all batches, and its offset."""
        self._largest_timestamp = timestamp
        self._offset_of_largest_timestamp = offset
        self.knows_max_timestamp = True

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp, or the modification time of the file if no batch has a timestamp. Retention by time uses it."""
        timestamp = self.max_timestamp.timestamp
        return timestamp if timestamp >= 0 else self.filesystem.modified_ms(self.path)

    @property
    def first_batch_timestamp(self) -> int:
        """The first batch's largest timestamp; -1 in an empty segment."""
        timestamp = self.rolling_based_timestamp
        if timestamp == UNKNOWN:
            header = header_at(self.file, 0, self.size)
            if header is None:
                return NO_TIMESTAMP
            timestamp = self.rolling_based_timestamp = header.max_timestamp
        return timestamp

    # ---- appending

    def append(self, data: Buffer, length: int, last_offset: int, max_timestamp: int, offset_of_max_timestamp: int) -> None:
        """Write whole batches of `length` bytes with one system call, and add one index entry if one is due.

        Changes nothing when it raises OSError: the bytes of a torn write are cut off, or the next append overwrites them.
        """
        self.begin_write()
        self.stage(length, last_offset, max_timestamp, offset_of_max_timestamp)
        self.write(data)

    def begin_write(self) -> None:
        """Start staging for the next `write`. Everything that must be read for it is read here, before anything is written."""
        if self._file is None:
            _ = self.file
        if not self.knows_max_timestamp:
            _ = self.max_timestamp
        self.staged_size = self.size
        self._staged_since_entry = self.bytes_since_last_index_entry
        self._staged_timestamp = self._largest_timestamp
        self._staged_timestamp_offset = self._offset_of_largest_timestamp
        self._has_staged_entries = False

    def should_roll(self, length: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch of `length` bytes up to `last_offset` must go into a new segment instead of following the staged ones."""
        size = self.staged_size
        settings = self._settings
        if size > settings.segment_bytes - length or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if size:
            first = self.rolling_based_timestamp
            if first == UNKNOWN:
                first = self.first_batch_timestamp
            # A producer's timestamp may be any number, so no difference is computed that could exceed 64 bits.
            waited = now_ms - self.created_ms if first < 0 else max_timestamp - first if max_timestamp > first else 0
            if waited > settings.roll_after_ms - self.roll_jitter_ms:
                return True
        offset_index: OffsetIndex | None = self._offset_index
        if offset_index is None:
            offset_index = self.offset_index
        time_index: TimeIndex | None = self._time_index
        if time_index is None:
            time_index = self.time_index
        return offset_index.entries >= offset_index.full_at or time_index.entries >= time_index.full_at

    def stage(self, length: int, last_offset: int, max_timestamp: int, offset_of_max_timestamp: int) -> None:
        """Stage batches of `length` bytes for the next `write`. Together they get at most one index entry.

        Raises CorruptIndex.
        """
        position = self.staged_size
        if position == 0:
            self.rolling_based_timestamp = max_timestamp
        if max_timestamp > self._staged_timestamp:
            self._staged_timestamp = max_timestamp
            self._staged_timestamp_offset = offset_of_max_timestamp
        if self._staged_since_entry > self._settings.index_interval_bytes:
            self._stage_entry(last_offset, position)
        self.staged_size = position + length
        self._staged_since_entry += length

    def _stage_entry(self, last_offset: int, position: int) -> None:
        offset_index, time_index = self.offset_index, self.time_index
        if not self._has_staged_entries:
            self._has_staged_entries = True
            self._entries_before = offset_index.entries, offset_index.last_offset
            self._time_entries_before = time_index.entries, time_index.last_timestamp, time_index.last_offset
        offset_index.add(last_offset, position)
        time_index.maybe_add(self._staged_timestamp, self._staged_timestamp_offset)
        self._staged_since_entry = 0

    def write(self, data: Buffer) -> None:
        """Write the staged batches, `data`, with one system call. Raises OSError as `append` does."""
        position = self.size
        file = self._file
        if file is None:
            file = self.file
        try:
            file.pwrite(data, position)
            if self._has_staged_entries:
                self.offset_index.spill()
                self.time_index.spill()
        except OSError:
            if self._has_staged_entries:
                # Usually the entries are still in memory, and removing them needs no disk access.
                self.offset_index.take_back(*self._entries_before)
                self.time_index.take_back(*self._time_entries_before)
            self._cut_torn_write(position)
            raise
        self.size = self.staged_size
        self.bytes_since_last_index_entry = self._staged_since_entry
        self._largest_timestamp = self._staged_timestamp
        self._offset_of_largest_timestamp = self._staged_timestamp_offset

    def _cut_torn_write(self, position: int) -> None:
        self.has_slack = True
        try:
            self.file.truncate(position)
        except OSError as error:
            log.error("%s: cannot truncate a torn write at byte %d: %s; the next start truncates it", self.path, position, error)

    def write_out_transactions(self) -> None:
        """Write the entries that were added to the transaction index."""
        if self._transaction_index is not None:
            self._transaction_index.write_out()

    def allocate_indexes(self) -> None:
        """Create the index files, if `create` did not."""
        self.offset_index.allocate()
        self.time_index.allocate()

    def become_active(self) -> None:
        """Make room in the indexes for appends, and release the disk space that a killed broker had reserved."""
        self.offset_index.make_room()
        self.time_index.make_room()
        if self.size >= FIRST_BYTES:
            self.give_back()

    def become_inactive(self) -> None:
        """Complete and trim the indexes, and release preallocated and reserved disk space."""
        self.complete_time_index()
        self.offset_index.trim()
        self.time_index.trim()
        self.trim()
        self.give_back()

    def complete_time_index(self) -> None:
        """Make the segment's largest timestamp the last entry."""
        self.time_index.maybe_append(*self.max_timestamp)

    def trim(self) -> None:
        """Truncate the file after its last batch."""
        if self.has_slack:
            self.file.truncate(self.size)
            self.has_slack = False

    def give_back(self) -> None:
        """Release the disk space that is reserved behind the end. No thread may be truncating the file meanwhile."""
        self.file.give_back()
        self.reserved_bytes = 0
        self.reserve_at = self.size + FIRST_BYTES

    # ---- finding

    def finder(self, file: File | UnwaitingFile | None = None) -> BatchFinder:
        """A finder for this segment that reads through `file`, or directly if None."""
        return BatchFinder(self, self.file if file is None else file, self.offset_index, self.base_offset, self.size)

    def locate(self, offset: int) -> int | None:
        """The position of the first batch that ends at or after `offset`; None if there is none."""
        finder = self.finder()
        return finder.position if finder.locate(offset, HEADER_SIZE) else None

    def index_position(self, offset: int, file: File | UnwaitingFile | None = None) -> int:
        """The position from which to search for `offset`: the beginning of a batch, according to the index."""
        return self.finder(file).indexed_position(offset)

    def read_end(self) -> tuple[int, int]:
        """The offset after the last whole batch, and the end of that batch in the file."""
        next_offset = self.base_offset
        end = 0
        for position, header in batches_from(self.file, self.index_position(self.offset_index.last_offset), self.size):
            next_offset = header.next_offset
            end = position + header.size
        return next_offset, end

    def find_by_timestamp(
        self, timestamp_ms: int, starting_offset: int, file: File | UnwaitingFile | None = None, found: FoundRecords | None = None
    ) -> RecordPosition | None:
        """The first record at or after `starting_offset` with a timestamp of at least `timestamp_ms`. Decompresses only necessary
        batches, large ones in a thread if there is a `found`."""
        begin = max(self.time_index.lookup(timestamp_ms).offset, starting_offset)
        return self.find_by_timestamp_from(begin, timestamp_ms, starting_offset, self.file if file is None else file, found)

    def find_by_timestamp_from(
        self, begin: int, timestamp_ms: int, starting_offset: int, file: File | UnwaitingFile, found: FoundRecords | None
    ) -> RecordPosition | None:
        """The same, where no record below offset `begin` can be the one."""
        position = self.index_position(begin, file)
        wanted = Wanted(timestamp_ms, LATEST, starting_offset)
        for at, header in candidates(self, file, position, wanted, found):
            record = first_record(self, at, file.pread(header.size, at), header, wanted, found)
            if record is not None:
                return RecordPosition(*record, header.partition_leader_epoch)
        return None

    def record_of_max_timestamp(self, file: File | UnwaitingFile | None = None, found: FoundRecords | None = None) -> RecordPosition | None:
        """The first record with the segment's largest timestamp."""
        if file is None:
            file = self.file
        timestamp, offset = self.max_timestamp
        for at, header in batches_from(file, self.index_position(offset, file), self.size):
            if header.max_timestamp == timestamp:
                if not header.magic:
                    return None  # its messages have no timestamps
                record = first_record(self, at, file.pread(header.size, at), header, Wanted(timestamp, timestamp, 0), found)
                return None if record is None else RecordPosition(*record, header.partition_leader_epoch)
        return None

    # ---- checking and rebuilding the indexes

    def check_indexes(self, may_wait: bool = True) -> None:
        """Rebuild the indexes if they cannot belong to this segment. Raises DamagedIndexes instead unless it `may_wait`."""
        try:
            self.offset_index.check(self.size)
            self.time_index.check()
            last = self.time_index.last_timestamp
            # An entry that a power cut kept from the disk reads as zeros. Retention would take the segment for one of 1970.
            if self.size and last <= 0 and self.first_batch_timestamp > last:
                raise CorruptIndex(self.time_index.path, f"its last timestamp, {last}, is below that of the first batch")
        except CorruptIndex as error:
            if not self.is_rebuilding:
                log.warning("%s; the indexes are rebuilt from the log file", error)
            self.rebuild_indexes(may_wait)

    def find_max_timestamp(self) -> None:
        """Find the largest timestamp in the batches behind the last time index entry."""
        timestamp, offset = self.time_index.last_entry
        for _, header in batches_from(self.file, self.index_position(offset), self.size):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        self.note_max_timestamp(timestamp, offset)

    def rebuild_indexes(self, may_wait: bool = True) -> None:
        """Rebuild offset and time index from the batch headers. Raises protocol's RecordFormatError for damaged headers, and DamagedIndexes
        unless it `may_wait`: a thread reads the headers first."""
        rebuild = self._rebuild
        if rebuild is None or rebuild.size != self.size:
            builder = IndexBuilder(self.path, self.base_offset, self._settings.index_interval_bytes)
            rebuild = self._rebuild = IndexRebuild(self.file, self.size, builder)
        if not rebuild.is_complete:
            if not may_wait:
                raise DamagedIndexes(self.filesystem, self.path, rebuild)
            rebuild.run(no_yield)
        self._rebuild = None
        has_room = self.offset_index.has_room
        self.begin_rebuild()
        builder = rebuild.builder
        self.offset_index.fill(builder.offset_index)
        self.time_index.fill(builder.time_index)
        timestamp, offset = builder.largest
        self.note_max_timestamp(timestamp, offset)
        self.finish_rebuild()
        if has_room:
            self.become_active()
        if rebuild.error is not None:
            raise rebuild.error

    @property
    def is_rebuilding(self) -> bool:
        """Whether a damage of the indexes is known, and a thread may be reading the batch headers."""
        return self._rebuild is not None

    def begin_indexes(self) -> None:
        """Create empty offset and time indexes for a new segment, without their files."""
        self._replace_indexes()
        self.offset_index.begin()
        self.time_index.begin()
        self.note_max_timestamp(self.time_index.last_timestamp, self.time_index.last_offset)

    def begin_rebuild(self) -> None:
        """Empty offset and time index. An index file of a wrong size or kind is replaced."""
        self._replace_indexes()
        self.offset_index.reset()
        self.time_index.reset()
        self.note_max_timestamp(self.time_index.last_timestamp, self.time_index.last_offset)

    def _replace_indexes(self) -> None:
        # Indexes that are not open are taken for empty: reading the last entry of a preallocated file costs a page fault of 60 µs.
        settings = self._settings
        if self._offset_index is None:
            path = self.path_of(OFFSET_INDEX_SUFFIX)
            self._offset_index = OffsetIndex(self.filesystem, path, self.base_offset, settings.index_bytes, 0)
        if self._time_index is None:
            self._time_index = TimeIndex(self.filesystem, self.path_of(TIME_INDEX_SUFFIX), self.base_offset, settings.index_bytes, 0)

    def index_batch(self, position: int, header: BatchHeader, last_entry: int) -> int:
        """Index the batch at `position` if it is far enough from `last_entry`. Returns the position of the last entry."""
        last_max = self.max_timestamp
        if header.max_timestamp > last_max.timestamp:
            last_max = TimestampOffset(header.max_timestamp, header.last_offset)
            self.note_max_timestamp(last_max.timestamp, last_max.offset)
        if position - last_entry > self._settings.index_interval_bytes:
            self.offset_index.append(header.last_offset, position)
            self.time_index.maybe_append(*last_max)
            return position
        return last_entry

    def finish_rebuild(self) -> None:
        """Complete and trim the indexes."""
        self.offset_index.trim()
        self.complete_time_index()
        self.time_index.trim()

    # ---- truncating, moving, closing

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Remove the batches that end at or after `offset`. Returns the number of bytes removed."""
        found = self.locate(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.become_active()
        if found is None:
            # Batches below the log start offset may never have been flushed, so a power failure may have left a part of one.
            found = self.read_end()[1]
        cut = self.size - found
        if cut:
            self.cut_at(found)
        if self.size == 0:
            self.created_ms = now_ms
            self.rolling_based_timestamp = UNKNOWN
        self.bytes_since_last_index_entry = 0
        self.find_max_timestamp()
        return cut

    def cut_at(self, position: int) -> None:
        """End the segment at byte `position`. The caller must repair the indexes."""
        self.file.truncate(position)
        self.size = position
        self.has_slack = False
        self.reserved_bytes = 0
        self.reserve_at = position + FIRST_BYTES

    def write_out_indexes(self) -> None:
        """Write index entries that are still in memory to their files."""
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.write_out()

    def sync(self) -> None:
        """Make batches and written index entries durable. Blocks; safe in a thread, because it changes nothing.

        Raises FileNotFoundError when the segment is removed meanwhile.
        """
        self.file.sync()
        for path in self.paths[1:]:
            if self.filesystem.exists(path):
                file = self.filesystem.open(path)
                file.sync()
                file.close()

    def change_suffix(self, suffix: str) -> None:
        """Rename the files to the suffix `.deleted`, `.swap`, or none."""
        old = self.paths
        self._suffix = suffix
        for source, target in zip(old, self.paths, strict=True):
            with suppress(FileNotFoundError):
                self.filesystem.rename(source, target)
        self._update_index_paths()

    def use_filesystem(self, filesystem: FileSystem) -> None:
        """Reach the files through another `FileSystem` from now on."""
        self.filesystem = filesystem
        for index in (self._offset_index, self._time_index, self._transaction_index):
            if index is not None:
                index.use_filesystem(filesystem)

    def move_to(self, directory: str) -> None:
        """Use the new name of the directory, after it was renamed."""
        self._directory = directory
        self._update_index_paths()

    def _update_index_paths(self) -> None:
        if self._offset_index is not None:
            self._offset_index.path = self.path_of(OFFSET_INDEX_SUFFIX)
        if self._time_index is not None:
            self._time_index.path = self.path_of(TIME_INDEX_SUFFIX)
        if self._transaction_index is not None:
            self._transaction_index.path = self.path_of(TRANSACTION_INDEX_SUFFIX)

    def delete(self) -> None:
        """Remove the files. Regions of the log file that are being sent stay readable."""
        self._file = None
        self.reserved_bytes = 0
        for path in self.paths:
            if self.filesystem.exists(path):
                self.filesystem.unlink(path)

    def close(self) -> None:
        """Complete and trim the open files, as a clean shutdown requires."""
        if self.knows_max_timestamp:
            self.complete_time_index()
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.trim()
        self.trim()
        if self.reserved_bytes:
            self.give_back()
        self.release()

    def close_without_writing(self) -> None:
        """Release everything after a disk failure."""
        self.reserved_bytes = 0
        self._file = None
        self._offset_index = None
        self._time_index = None

    def release(self) -> bool:
        """Close files and maps; the next use opens them again. Returns whether the log file was open."""
        was_open = self._file is not None
        self._file = None
        for index in (self._offset_index, self._time_index, self._transaction_index):
            if index is not None:
                index.release()
        return was_open

    def update_settings(self, settings: LogSettings) -> None:
        self._settings = settings
