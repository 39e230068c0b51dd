"""Cleans one log, from the map of keys to the cleaned segments, as Apache Kafka's Cleaner does.

Runs in a process of its own (`worker`), so that the event loop never waits for it. It reads the log's closed segments
and writes `.cleaned` files beside them, and changes no other file. The broker replaces the segments of each group when
it is reported (`PartitionLog.replace_segments`), before the next group is begun.

First the uncleaned part of the log is read into the map, as far as the map holds. Then all segments up to there are
copied without the records that have a later one in the map; neighbouring segments are merged as long as they fit into
one.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from ottla.protocol.conversion.old_logs import as_batches
from ottla.protocol.records.batch import CONTROL_MASK, NO_TIMESTAMP, BatchHeader, Buffer, iter_batches, next_batch_size, parse_header
from ottla.protocol.records.errors import CorruptRecord, RecordFormatError
from ottla.protocol.records.reader import record_data
from ottla.storage.cleaner.filter import BatchFilter
from ottla.storage.cleaner.job import CleanedGroup, CleaningAborted, CleaningJob, CleaningStats, SourceSegment
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.cleaner.transactions import CleanedTransactions
from ottla.storage.disk.file_names import CLEANED_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_name
from ottla.storage.disk.filesystem import File, FileSystem
from ottla.storage.errors import SegmentOffsetOverflow
from ottla.storage.segment.batch_scan import batches_from
from ottla.storage.segment.leftovers import remove_cleaned
from ottla.storage.segment.log_settings import LogSettings
from ottla.storage.segment.offset_index import MAX_RELATIVE_OFFSET
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.transaction_index import AbortedTransaction, TransactionIndex

_SMALLEST_BUFFER = 4096
_LARGEST_GROUP = 100
"""Largest number of segments in a group: the broker's event loop removes all of them from the log in one step (0.3 ms)."""


class CleanerPorts(NamedTuple):
    """The dependencies of a cleaning."""

    filesystem: FileSystem
    monotonic: Callable[[], float]
    check: Callable[[], None]
    """Called before every read and every new file. Raises CleaningAborted if the cleaning was aborted, and SystemExit if the broker is
    gone; then nothing is removed."""
    throttle: Callable[[int], None]
    """Called with the number of bytes read or written; waits as long as `log.cleaner.io.max.bytes.per.second` requires."""


def clean(job: CleaningJob, ports: CleanerPorts) -> Generator[CleanedGroup, None, CleaningStats]:
    """Yields each group when its files are complete; continues when its segments are replaced. Returns the statistics.

    Raises OSError, RecordFormatError, CorruptIndex, SegmentOffsetOverflow, and the exceptions of `check`; then the
    files of an unfinished group are removed.
    """
    return (yield from _Cleaning(job, ports).run())


class _Cleaning:
    def __init__(self, job: CleaningJob, ports: CleanerPorts) -> None:
        self._job = job
        self._ports = ports
        self._fs = ports.filesystem
        self._settings = LogSettings.of_numbers(job.segment_settings)
        self._buffer_bytes = max(job.io_buffer_bytes, _SMALLEST_BUFFER)
        self._stats = CleaningStats()
        self._map = OffsetMap(job.map_bytes, job.first_dirty_offset)
        self._aborted = self._aborted_transactions()

    def run(self) -> Generator[CleanedGroup, None, CleaningStats]:
        job, stats = self._job, self._stats
        began = self._ports.monotonic()
        self._fill_map()
        self._map.finish()
        end_offset = self._map.latest_offset + 1
        stats.index_seconds = self._ports.monotonic() - began
        stats.invalid_messages_read = self._map.without_key
        batches = BatchFilter(
            self._map,
            {producer_id: (offset, epoch) for producer_id, offset, epoch in job.producers},
            end_offset=job.first_uncleanable_offset,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
            stats=stats,
        )
        sources = [self._source(each) for each in job.segments if each.base_offset < end_offset]
        if sources:
            batches.transactions.add_aborted(each for each in self._aborted if each.last_offset >= sources[0].base_offset)
        for group in group_segments(sources, self._settings, job.first_uncleanable_offset):
            self._clean_group(group, batches)
            yield CleanedGroup(group[0].base_offset, tuple(segment.base_offset for segment in group))
        stats.buffer_utilization = self._map.utilization
        stats.elapsed_seconds = self._ports.monotonic() - began
        stats.end_offset = end_offset
        return stats

    def _fill_map(self) -> None:
        job, offset_map, stats = self._job, self._map, self._stats
        start = job.first_dirty_offset
        max_size = int(offset_map.max_slots * job.load_factor)
        transactions = CleanedTransactions()
        transactions.add_aborted(each for each in self._aborted if each.last_offset >= start)
        ends = [*(each.base_offset for each in job.segments), job.first_uncleanable_offset][1:]
        for each, end in zip(job.segments, ends, strict=True):
            if end <= start:
                continue
            file = self._source(each).file
            for chunk, batches in self._chunks(file, _position_of(file, each, start), each.size):
                for position, header in batches:
                    if header.attributes & CONTROL_MASK:
                        transactions.on_control(chunk, position, header)
                    elif not transactions.on_data(header) and header.last_offset >= start:
                        with _named(file, header):
                            if not offset_map.add(record_data(chunk, position, header), header, start, max_size):
                                return
                    stats.map_bytes_read += header.size
                    if header.last_offset >= start:
                        offset_map.latest_offset = header.last_offset
            # Offsets may be missing at the end of the segment.
            offset_map.latest_offset = end - 1

    def _clean_group(self, group: list[Segment], batches: BatchFilter) -> None:
        job = self._job
        base_offset = group[0].base_offset
        self._ports.check()
        self._remove_cleaned(base_offset)
        try:
            cleaned = Segment.create(self._fs, job.directory, base_offset, self._settings, now_ms=job.now_ms, suffix=CLEANED_SUFFIX)
            batches.transactions.index = cleaned.transaction_index
            for segment in group:
                self._clean_into(cleaned, segment, batches)
                modified_ms = self._fs.modified_ms(segment.path)
            self._ports.check()  # the throttle may have waited for long
            cleaned.become_inactive()
            cleaned.sync()
            # Retention by time uses the file's modification time when no record has a timestamp.
            self._fs.set_modified_ms(cleaned.path, modified_ms)
        except Exception:
            with suppress(CleaningAborted):
                self._ports.check()  # SystemExit removes nothing: the files may be those of another broker's worker by now
            self._remove_cleaned(base_offset)
            raise

    def _clean_into(self, cleaned: Segment, source: Segment, batches: BatchFilter) -> None:
        stats = self._stats
        output = _Output(cleaned, self._settings.index_interval_bytes)
        for chunk, headers in self._chunks(source.file, 0, source.size):
            view = memoryview(chunk)
            written = cleaned.size
            for position, header in headers:
                size = header.size
                stats.bytes_read += size
                with _named(source.file, header):
                    kept = batches.filter(view, position, header)
                if kept is True:
                    output.add(view[position : position + size], header)
                elif kept is not False:
                    if len(kept) > size and len(kept) > self._job.max_message_bytes:
                        stats.oversized_batches += 1
                    output.add(kept, parse_header(kept))
            output.flush()
            written = cleaned.size - written
            stats.bytes_written += written
            self._ports.throttle(written)

    # ---- reading

    def _source(self, source: SourceSegment) -> Segment:
        segment = Segment(self._fs, self._job.directory, source.base_offset, self._settings, now_ms=self._job.now_ms)
        if segment.size != source.size:
            raise CleaningAborted(f"{segment.path} has {segment.size} bytes, {source.size} when the cleaning began")
        return segment

    def _chunks(self, file: File, position: int, end: int) -> Iterator[tuple[bytes, list[tuple[int, BatchHeader]]]]:
        """Buffers of complete batches from `position` on, with the position of each batch in them. Messages are converted to batches."""
        length = self._buffer_bytes
        while position < end:
            self._ports.check()
            chunk = file.pread(min(length, end - position), position)
            batches = list(iter_batches(chunk))
            if batches:
                length = self._buffer_bytes
                at, header = batches[-1]
                consumed = at + header.size
                self._ports.throttle(consumed)
                yield as_batches(chunk, batches) if any(header.is_message for _, header in batches) else (chunk, batches)
                position += consumed
                continue
            size = next_batch_size(chunk, 0, end - position)
            if size is None or size <= len(chunk):
                raise CorruptRecord(f"{file.path}: the batch at byte {position} is incomplete")
            length = size

    def _aborted_transactions(self) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        for base_offset in (*(each.base_offset for each in self._job.segments), *self._job.later_segments):
            path = f"{self._job.directory}/{file_name(base_offset, TRANSACTION_INDEX_SUFFIX)}"
            if self._fs.exists(path):
                found += TransactionIndex(self._fs, path, base_offset, self._fs.size(path)).entries()
        return found

    def _remove_cleaned(self, base_offset: int) -> None:
        remove_cleaned(self._fs, self._job.directory, base_offset)


class _Output:
    """Appends batches to a cleaned segment, one piece at a time: each piece may get an entry in the indexes."""

    def __init__(self, segment: Segment, piece_bytes: int) -> None:
        self._segment = segment
        self._piece_bytes = piece_bytes
        self._parts: list[Buffer] = []
        self._length = 0
        self._last_offset = -1
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = -1

    def add(self, batch: Buffer, header: BatchHeader) -> None:
        self._parts.append(batch)
        self._length += len(batch)
        self._last_offset = header.last_offset
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
            self._offset_of_max_timestamp = header.last_offset
        if self._length > self._piece_bytes:
            self.flush()

    def flush(self) -> None:
        if self._length:
            base_offset = self._segment.base_offset
            if self._last_offset - base_offset > MAX_RELATIVE_OFFSET:
                raise SegmentOffsetOverflow(self._segment.path, base_offset, self._last_offset)
            data = b"".join(self._parts)
            self._segment.append(data, self._length, self._last_offset, self._max_timestamp, self._offset_of_max_timestamp)
            self._parts.clear()
            self._length = 0
            self._max_timestamp = NO_TIMESTAMP


def group_segments(segments: list[Segment], settings: LogSettings, first_uncleanable_offset: int) -> list[list[Segment]]:
    """Neighbouring segments whose batches, indexes and range of offsets fit into one segment."""
    groups: list[list[Segment]] = []
    bytes_of_group = (0, 0, 0)
    for at, segment in enumerate(segments):
        sizes = (
            segment.size,
            segment.offset_index.entries * segment.offset_index.entry_size,
            segment.time_index.entries * segment.time_index.entry_size,
        )
        following = segments[at + 1].base_offset if at + 1 < len(segments) else first_uncleanable_offset
        log_bytes, offset_index_bytes, time_index_bytes = (a + b for a, b in zip(bytes_of_group, sizes, strict=True))
        if (
            groups
            and len(groups[-1]) < _LARGEST_GROUP
            and log_bytes <= settings.segment_bytes
            and offset_index_bytes <= settings.index_bytes
            and time_index_bytes <= settings.index_bytes
            and (segment.size == 0 or following - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
            bytes_of_group = (log_bytes, offset_index_bytes, time_index_bytes)
        else:
            groups.append([segment])
            bytes_of_group = sizes
    return groups


@contextmanager
def _named(file: File, header: BatchHeader) -> Iterator[None]:
    """Name the batch in an error about its records."""
    try:
        yield
    except RecordFormatError as error:
        raise CorruptRecord(
            f"{file.path}: the batch of offsets {header.base_offset} to {header.last_offset} cannot be read: {error}"
        ) from None


def _position_of(file: File, source: SourceSegment, start_offset: int) -> int:
    """The position of the first batch that reaches `start_offset`."""
    if start_offset <= source.base_offset:
        return 0
    return next((position for position, header in batches_from(file, 0, source.size) if header.last_offset >= start_offset), source.size)
