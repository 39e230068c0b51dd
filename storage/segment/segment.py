"""One segment of a log: a file of batches, the indexes beside it, and the largest timestamp in it.

Owned by a `PartitionLog`; the last segment of a log is appended to, the others are read and one day deleted. Files and indexes of segments
that nobody reads stay closed, so opening a log costs a few `stat` calls for each.

Invariants: `size` counts whole batches; bytes behind it (torn by a failed write, or preallocated) are not part of the log, and the next
append overwrites them. Every method may raise OSError.
"""

import logging
from contextlib import suppress
from typing import NamedTuple

from protocol.records.batch import HEADER_SIZE, BatchHeader, Buffer
from protocol.records.reader import iter_records
from storage.disk.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from storage.disk.filesystem import File, FileSystem
from storage.errors import CorruptIndex
from storage.segment.batch_finder import BatchFinder
from storage.segment.batch_scan import batches_from, header_at
from storage.segment.cold_lookups import UnwaitingFile
from storage.segment.limits import FIRST_BYTES, MAX_RELATIVE_OFFSET, NO_TIMESTAMP, UNKNOWN
from storage.segment.log_settings import LogSettings
from storage.segment.offset_index import OffsetIndex
from storage.segment.time_index import TimeIndex, TimestampOffset
from storage.segment.transaction_index import TransactionIndex

log = logging.getLogger(__name__)


class RecordPosition(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


class Segment:
    """The batches from `base_offset` up to the next segment's."""

    __slots__ = (
        "_directory",
        "_entries_before",
        "_file",
        "_has_staged_entries",
        "_largest_timestamp",
        "_offset_index",
        "_offset_of_largest_timestamp",
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
        """A segment whose files exist; `size` is asked of the file system unless given."""
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
        self.knows_max_timestamp = False
        """Whether `max_timestamp` needs no file."""
        self._largest_timestamp = self._offset_of_largest_timestamp = NO_TIMESTAMP
        self.staged_size = 0
        self._staged_since_entry = 0
        self._staged_timestamp = self._staged_timestamp_offset = NO_TIMESTAMP
        self._has_staged_entries = False
        self._entries_before = (0, 0)
        self._time_entries_before = (0, 0, 0)
        self.size = filesystem.size(self.path) if size is None else size
        self.reserve_at = self.size + FIRST_BYTES  # the size at which `Reservations` is asked for more
        self.reserved_bytes = 0  # what it had set aside last

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
        """A new, empty one with room in its indexes; preallocated if the topic says so. `file` is its log file, if that is there already.

        Without `has_index_files`, `allocate_indexes` is to follow before anybody relies on them; entries are taken from the first one on.
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
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp and the last offset of its batch; (-1, base offset) if no batch has one."""
        if not self.knows_max_timestamp:
            self.check_indexes()
            if not self.knows_max_timestamp:
                self._has_max_timestamp(self.time_index.last_timestamp, self.time_index.last_offset)
        return TimestampOffset(self._largest_timestamp, self._offset_of_largest_timestamp)

    def _has_max_timestamp(self, timestamp: int, offset: int) -> None:
        self._largest_timestamp = timestamp
        self._offset_of_largest_timestamp = offset
        self.knows_max_timestamp = True

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp; when the file was last written if no batch has one. Retention by time goes by it."""
        timestamp = self.max_timestamp.timestamp
        return timestamp if timestamp >= 0 else self.filesystem.modified_ms(self.path)

    @property
    def first_batch_timestamp(self) -> int:
        """The first batch's largest timestamp, -1 in an empty segment."""
        timestamp = self.rolling_based_timestamp
        if timestamp == UNKNOWN:
            header = header_at(self.file, 0, self.size)
            if header is None:
                return NO_TIMESTAMP
            timestamp = self.rolling_based_timestamp = header.max_timestamp
        return timestamp

    # ---- appending

    def append(self, data: Buffer, length: int, last_offset: int, max_timestamp: int, offset_of_max_timestamp: int) -> None:
        """Write whole batches of `length` bytes with one system call, and one index entry when it is time.

        Changes nothing when it raises OSError: bytes of a torn write are cut off again, or lie where the next append will write.
        """
        self.begin_write()
        self.stage(length, last_offset, max_timestamp, offset_of_max_timestamp)
        self.write(data)

    def begin_write(self) -> None:
        """Nothing is staged for the next `write`. What has to be read for it is read here, before anything is written."""
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
        """Whether a batch of `length` bytes up to `last_offset` belongs into a new segment, instead of behind what is staged."""
        size = self.staged_size
        settings = self._settings
        if size > settings.segment_bytes - length or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if size:
            first = self.rolling_based_timestamp
            if first == UNKNOWN:
                first = self.first_batch_timestamp
            # A timestamp of a producer may be any number: no difference is taken that 64 bits do not hold.
            waited = now_ms - self.created_ms if first < 0 else max_timestamp - first if max_timestamp > first else 0
            if waited > settings.roll_after_ms - self.roll_jitter_ms:
                return True
        offset_index = self._offset_index
        if offset_index is None:
            offset_index = self.offset_index
        time_index = self._time_index
        if time_index is None:
            time_index = self.time_index
        return offset_index.entries >= offset_index.full_at or time_index.entries >= time_index.full_at

    def stage(self, length: int, last_offset: int, max_timestamp: int, offset_of_max_timestamp: int) -> None:
        """Say what the next `write` brings behind what is staged: batches of `length` bytes, which may get one index entry together.

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
        """Write what was staged, `data`, with one system call. Raises OSError as `append` does."""
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
                # Mostly they are still in memory: what could not be written is taken back without touching the disk.
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
            log.error("%s: cannot cut a torn write at byte %d: %s; the next start will", self.path, position, error)

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
        self.time_index.maybe_append(*self.max_timestamp)

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

    # ---- finding

    def finder(self, file: File | UnwaitingFile | None = None) -> BatchFinder:
        """Looks for batches. `file` is how to read; as ever if None."""
        return BatchFinder(self, self.file if file is None else file, self.offset_index, self.base_offset, self.size)

    def locate(self, offset: int) -> int | None:
        """Where the first batch that ends at or after `offset` begins; None if all end before."""
        finder = self.finder()
        return finder.position if finder.locate(offset, HEADER_SIZE) else None

    def index_position(self, offset: int, file: File | UnwaitingFile | None = None) -> int:
        """Where to begin looking for `offset`: the beginning of a batch, as the index says."""
        return self.finder(file).indexed_position(offset)

    def read_end(self) -> tuple[int, int]:
        """The offset after the last whole batch, and where that batch ends."""
        next_offset = self.base_offset
        end = 0
        for position, header in batches_from(self.file, self.index_position(self.offset_index.last_offset), self.size):
            next_offset = header.next_offset
            end = position + header.size
        return next_offset, end

    def find_by_timestamp(self, timestamp_ms: int, starting_offset: int, file: File | UnwaitingFile | None = None) -> RecordPosition | None:
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

    def record_of_max_timestamp(self, file: File | UnwaitingFile | None = None) -> RecordPosition | None:
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

    # ---- checking the indexes and making them anew

    def check_indexes(self) -> None:
        """Rebuilds the indexes if they cannot be this segment's."""
        try:
            self.offset_index.check(self.size)
            self.time_index.check()
            if self.size and not self.time_index.entries and self.first_batch_timestamp >= 0:
                raise CorruptIndex(self.time_index.path, "it is empty, the segment is not")
        except CorruptIndex as error:
            log.warning("%s; the indexes are rebuilt from the log file", error)
            self.rebuild_indexes()

    def find_max_timestamp(self) -> None:
        """Looks for the largest timestamp in the batches behind the last time index entry."""
        timestamp, offset = self.time_index.last_entry
        for _, header in batches_from(self.file, self.index_position(offset), self.size):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        self._has_max_timestamp(timestamp, offset)

    def rebuild_indexes(self) -> None:
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

    def begin_indexes(self) -> None:
        """Offset and time index of a new segment, empty; their files are not made yet."""
        self._replace_indexes()
        self.offset_index.begin()
        self.time_index.begin()
        self._has_max_timestamp(self.time_index.last_timestamp, self.time_index.last_offset)

    def begin_rebuild(self) -> None:
        """Empties offset and time index; an index file of a wrong size or kind is replaced."""
        self._replace_indexes()
        self.offset_index.reset()
        self.time_index.reset()
        self._has_max_timestamp(self.time_index.last_timestamp, self.time_index.last_offset)

    def _replace_indexes(self) -> None:
        # Taken for empty if not yet open: to look at the last entry of a preallocated file costs a page fault of 60 µs.
        settings = self._settings
        if self._offset_index is None:
            path = self._path(OFFSET_INDEX_SUFFIX)
            self._offset_index = OffsetIndex(self.filesystem, path, self.base_offset, settings.index_bytes, 0)
        if self._time_index is None:
            self._time_index = TimeIndex(self.filesystem, self._path(TIME_INDEX_SUFFIX), self.base_offset, settings.index_bytes, 0)

    def index_batch(self, position: int, header: BatchHeader, last_entry: int) -> int:
        """Takes the batch at `position` into the indexes if it is far enough from `last_entry`; returns where the last entry is."""
        last_max = self.max_timestamp
        if header.max_timestamp > last_max.timestamp:
            last_max = TimestampOffset(header.max_timestamp, header.last_offset)
            self._has_max_timestamp(*last_max)
        if position - last_entry > self._settings.index_interval_bytes:
            self.offset_index.append(header.last_offset, position)
            self.time_index.maybe_append(*last_max)
            return position
        return last_entry

    def finish_rebuild(self) -> None:
        """Completes and trims the indexes."""
        self.offset_index.trim()
        self.complete_time_index()
        self.time_index.trim()

    # ---- cutting, going away

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
            self.rolling_based_timestamp = UNKNOWN
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
