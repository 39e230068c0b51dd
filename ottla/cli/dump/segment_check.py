"""Verifies one segment of a partition: its batches, and its index files against them. Runs in worker processes.

The rules are those on which a reader relies, whichever entries the writer made: an index entry points to the beginning
of a batch from which everything up to the entry's offset can be found; a time index entry has the largest timestamp up
to its offset.
"""

from pathlib import Path
from typing import NamedTuple

from ottla.cli.dump.index_bytes import IndexEntry, TimeEntry, used_offset_entries, used_time_entries
from ottla.cli.dump.segment_bytes import WholeBatch, whole_batches
from ottla.protocol.conversion.old_logs import readable
from ottla.protocol.records.batch import CURRENT_MAGIC, UNKNOWN_COUNT, BatchHeader, crc_is_valid
from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.records.reader import check_records, record_pieces
from ottla.storage.disk.directory_names import parse_directory_name
from ottla.storage.disk.file_names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_name
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.errors import StorageError
from ottla.storage.segment.offset_index import MAX_RELATIVE_OFFSET
from ottla.storage.segment.transaction_index import TransactionIndex

MAX_PROBLEMS = 20
"""Problems reported for one segment: a file of zeros has nothing new to report after that many."""
MAX_UNREADABLE = 10_000
"""Batches of malformed records reported for one segment, in addition. Consumers have to get past each of them."""


class SegmentTask(NamedTuple):
    """The segment that a worker verifies."""

    directory: str
    base_offset: int
    is_last: bool
    is_live: bool


class SegmentReport(NamedTuple):
    """The result of a check. `first_offset` and `next_offset` are None for a segment without batches.

    `unreadable` are those of the problems that are whole batches of malformed records.
    """

    directory: str
    base_offset: int
    bytes: int
    batches: int
    records: int
    first_offset: int | None
    next_offset: int | None
    first_epoch: int
    last_epoch: int
    problems: list[str]
    unreadable: list[str]


class _IndexFiles(NamedTuple):
    offsets: list[IndexEntry]
    times: list[TimeEntry]


def check_segment(task: SegmentTask) -> SegmentReport | None:
    """Verify one segment. None in a live directory if retention has deleted it meanwhile."""
    try:
        return _Segment(task).check()
    except FileNotFoundError as error:
        if task.is_live:
            return None
        problems = [f"{error.filename}: it vanished during the check"]
    except OSError as error:
        problems = [f"{error.filename or task.directory}: {error.strerror or error}"]
    return SegmentReport(task.directory, task.base_offset, 0, 0, 0, None, None, -1, -1, problems, [])


class _Segment:
    def __init__(self, task: SegmentTask) -> None:
        self.task = task
        self.problems: list[str] = []
        self.unreadable: list[str] = []
        self.path = self._path(LOG_SUFFIX)

    def _path(self, suffix: str) -> Path:
        return Path(self.task.directory, file_name(self.task.base_offset, suffix))

    def _problem(self, path: Path, text: str) -> None:
        others = len(self.problems) - len(self.unreadable)
        if others < MAX_PROBLEMS:
            self.problems.append(f"{path}: {text}")
        elif others == MAX_PROBLEMS:
            self.problems.append(f"{path}: and further problems")

    def _unreadable_batch(self, text: str) -> None:
        count = len(self.unreadable)
        if count < MAX_UNREADABLE:
            self.unreadable.append(f"{self.path}: {text}")
        elif count == MAX_UNREADABLE:
            self.unreadable.append(f"{self.path}: and further batches whose records cannot be read")
        else:
            return
        self.problems.append(self.unreadable[-1])

    def check(self) -> SegmentReport:
        indexes = self._read_indexes()  # before the log: a live log then contains everything that the entries refer to
        positions = {entry.position for entry in indexes.offsets}
        found_at: dict[int, int] = {}  # position of indexed batch -> its base offset
        extents: list[tuple[int, int, int]] = []  # (base offset, last offset, max timestamp), only for the time index
        base = self.task.base_offset
        next_offset = base
        batches = records = end_of_batches = 0
        first_offset = first_epoch = None
        epoch = -1
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            try:
                for batch in whole_batches(file, 0, size):
                    header = batch.header
                    self._check_batch(batch, next_offset, epoch)
                    if first_offset is None:
                        first_offset, first_epoch = header.base_offset, header.partition_leader_epoch
                    if batch.position in positions:
                        found_at[batch.position] = header.base_offset
                    if indexes.times:
                        extents.append((header.base_offset, header.last_offset, header.max_timestamp))
                    batches += 1
                    records += self._count(batch)
                    next_offset = max(next_offset, header.next_offset)
                    epoch = max(epoch, header.partition_leader_epoch)
                    end_of_batches = batch.position + header.size
            except RecordFormatError as error:
                self._problem(self.path, f"byte {end_of_batches}, after offset {next_offset - 1}: {error}")
            else:
                self._check_tail(size, end_of_batches, next_offset)
        self._check_offset_index(indexes.offsets, found_at, end_of_batches, next_offset)
        self._check_time_index(indexes.times, extents)
        self._check_transaction_index(next_offset)
        return SegmentReport(
            self.task.directory,
            base,
            size,
            batches,
            records,
            first_offset,
            next_offset if batches else None,
            -1 if first_epoch is None else first_epoch,
            epoch,
            self.problems,
            self.unreadable,
        )

    def _read_indexes(self) -> _IndexFiles:
        found: dict[str, bytes] = {}
        for suffix, entry_size in ((OFFSET_INDEX_SUFFIX, 8), (TIME_INDEX_SUFFIX, 12)):
            path = self._path(suffix)
            found[suffix] = path.read_bytes() if path.exists() else b""
            if not path.exists() and not self.task.is_live:
                self._problem(path, "it is missing; the next start rebuilds it")
            if len(found[suffix]) % entry_size:
                self._problem(path, f"{len(found[suffix])} bytes are not a multiple of {entry_size}")
        base = self.task.base_offset
        return _IndexFiles(used_offset_entries(found[OFFSET_INDEX_SUFFIX], base), used_time_entries(found[TIME_INDEX_SUFFIX], base))

    # ---- the log

    def _check_batch(self, batch: WholeBatch, next_offset: int, epoch: int) -> None:
        header = batch.header
        where = f"batch at byte {batch.position}, offset {header.base_offset}"
        if header.magic > CURRENT_MAGIC:
            self._problem(self.path, f"{where}: its magic is {header.magic}")
            return
        if not crc_is_valid(batch.buffer, batch.at):
            self._problem(self.path, f"{where}: its CRC is not {header.crc}")
            return
        if header.base_offset < next_offset:
            self._problem(self.path, f"{where}: its offset must be {next_offset} or later")
        if header.last_offset_delta < 0 or header.last_offset - self.task.base_offset > MAX_RELATIVE_OFFSET:
            self._problem(self.path, f"{where}: its last offset {header.last_offset} is not possible")
        if not header.is_message and not 0 <= header.record_count <= header.last_offset_delta + 1:
            self._problem(self.path, f"{where}: {header.record_count} records in {header.last_offset_delta + 1} offsets")
        if 0 <= header.partition_leader_epoch < epoch:
            self._problem(self.path, f"{where}: leader epoch {header.partition_leader_epoch} after {epoch}")
        try:
            buffer, at, readable_header = readable(batch.buffer, batch.at, header)
            check_records(record_pieces(buffer, at, readable_header), readable_header)
        except RecordFormatError as error:
            self._unreadable_batch(f"{where} to {header.last_offset}: its records cannot be read: {error}; {self._way_around(header)}")

    def _way_around(self, header: BatchHeader) -> str:
        """How consumers get past a batch that cannot be read."""
        found = parse_directory_name(Path(self.task.directory).name)
        partition = "the partition" if found is None else f"{found[0].topic}-{found[0].partition}"
        return f"consumers of {partition} can go on at offset {header.next_offset} (a seek, or `ottla groups reset-offsets`)"

    def _count(self, batch: WholeBatch) -> int:
        """The number of records. Only the content of a compressed message shows it."""
        if batch.header.record_count != UNKNOWN_COUNT:
            return batch.header.record_count
        try:
            return readable(batch.buffer, batch.at, batch.header)[2].record_count
        except RecordFormatError:
            return 0  # the check of the records reports it

    def _check_tail(self, size: int, end_of_batches: int, next_offset: int) -> None:
        torn = size - end_of_batches
        if torn and not (self.task.is_live and self.task.is_last):  # a live log may be writing a batch there
            self._problem(
                self.path, f"{torn} bytes from byte {end_of_batches} on, after offset {next_offset - 1}, are not a complete batch"
            )

    # ---- indexes

    def _check_offset_index(self, entries: list[IndexEntry], found_at: dict[int, int], end_of_batches: int, next_offset: int) -> None:
        path = self._path(OFFSET_INDEX_SUFFIX)
        before = IndexEntry(self.task.base_offset - 1, -1)
        for entry in entries:
            what = f"entry of offset {entry.offset} at byte {entry.position}"
            if entry.offset <= before.offset or entry.position < before.position:
                self._problem(path, f"{what}: it follows offset {before.offset} at byte {before.position}")
            elif entry.position >= end_of_batches or entry.offset >= next_offset:
                self._problem(path, f"{what}: the log ends at byte {end_of_batches}, before offset {next_offset}")
            elif entry.position not in found_at:
                self._problem(path, f"{what}: no batch begins there")
            elif found_at[entry.position] > entry.offset:
                self._problem(path, f"{what}: the batch there begins with offset {found_at[entry.position]}")
            before = entry

    def _check_time_index(self, entries: list[TimeEntry], extents: list[tuple[int, int, int]]) -> None:
        path = self._path(TIME_INDEX_SUFFIX)
        before = TimeEntry(-1, self.task.base_offset)
        at = 0
        latest = -1  # of the batches that end at or before the entry's offset
        for number, entry in enumerate(entries):
            what = f"entry of timestamp {entry.timestamp} at offset {entry.offset}"
            if number and (entry.timestamp <= before.timestamp or entry.offset < before.offset):
                self._problem(path, f"{what}: it follows timestamp {before.timestamp} at offset {before.offset}")
                return
            while at < len(extents) and extents[at][1] <= entry.offset:
                latest = max(latest, extents[at][2])
                at += 1
            covering = extents[at][2] if at < len(extents) and extents[at][0] <= entry.offset else -1
            if latest > entry.timestamp:
                self._problem(path, f"{what}: a record up to there has timestamp {latest}")
            elif max(latest, covering) < entry.timestamp:
                self._problem(path, f"{what}: no record up to there has it; the largest is {max(latest, covering)}")
            before = entry

    def _check_transaction_index(self, next_offset: int) -> None:
        path = self._path(TRANSACTION_INDEX_SUFFIX)
        if not path.exists():
            return
        size = path.stat().st_size
        if size % 34:
            self._problem(path, f"{size} bytes are not a multiple of 34")
        before = self.task.base_offset - 1
        try:
            entries = TransactionIndex(RealFileSystem(), str(path), self.task.base_offset, size).entries()
        except StorageError as error:
            self._problem(path, str(error))
            return
        for entry in entries:
            what = f"aborted transaction of producer {entry.producer_id}, offsets {entry.first_offset} to {entry.last_offset}"
            if entry.first_offset > entry.last_offset or entry.last_offset <= before:
                self._problem(path, f"{what}: this cannot follow offset {before}")
            elif entry.last_offset >= next_offset and not self.task.is_live:
                self._problem(path, f"{what}: the log ends before offset {next_offset}")
            before = entry.last_offset
