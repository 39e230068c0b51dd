"""Truncates a log at its end.

A follower does so when its leader's history differs from its own. Truncating a large file, renaming many files and reading the rest for
producers take long, so a thread does this work (`Truncation.run`). From the beginning the log reports its new end, with a recovery point
and leader epochs that match. A `SegmentBeingTruncated` replaces the truncated segment, and refuses appends and reads: the callers retry
later. When the thread is done and the checkpoints of the log directory are durable, the real segment takes its place again.

The functions are called on the event loop by the methods of `PartitionLog` with the same names. `truncate_to` and
`truncate_fully_and_start_at` wait for the thread's work only; their callers write the checkpoints. After a
crash in between, the log ends at the new end or, if whole segments are left, later. Then it still differs from the leader's log and is
truncated again.

Appends wait for the checkpoints because a power cut may damage the appended records. The next start checks the records above the recovery
point in the checkpoint, and finds leader epochs only there. With a former recovery point it would accept damaged records as flushed, and
with a former log start offset it would delete the log.

A disk failure takes the log directory offline. After any other error of the thread, for example a lack of memory or damage in the file, the
log keeps refusing, and the work is repeated until it succeeds. Otherwise the partition would be unusable until the next start.
"""

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.protocol.records.errors import RecordFormatError
from ottla.storage.disk.file_names import INDEX_SUFFIXES, LOG_SUFFIX, offset_of_file_name
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.movable_directory import MovableDirectory
from ottla.storage.disk.yielding import yield_to_loop
from ottla.storage.errors import LogBeingTruncated, LogClosed, LogDirFailure, StorageError
from ottla.storage.log.deletion import delete_later, discard_files, ignore_result, names_of, rename_snapshots
from ottla.storage.log.producer_replay import rebuild_producer_state
from ottla.storage.segment.log_segments import LogSegments
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

OnTruncated = Callable[[Exception | None], None]
TRUNCATE_LOG = "truncate-log"
_SEGMENTS_AT_ONCE = 10
_FIRST_RETRY_MS = 1000
_LAST_RETRY_MS = 60_000
"""Delays before a truncation is repeated, milliseconds; each is twice the one before."""
_UNKNOWN_OFFSET = -1


class Truncation:
    """A truncation in progress. Until `run` has returned, its objects belong to the thread."""

    __slots__ = (
        "_directory",
        "_discards",
        "_earlier",
        "_filesystem",
        "_has_run",
        "_jitter_ms",
        "_lock",
        "_now_ms",
        "_settings",
        "asked_meanwhile",
        "end_offset",
        "error",
        "gone",
        "is_full",
        "log_start_offset",
        "producers",
        "retry_ms",
        "segment",
        "snapshots",
        "then",
    )

    def __init__(
        self, log: "PartitionLog", end_offset: int, log_start_offset: int, segment: Segment | None, gone: list[Segment], then: OnTruncated
    ) -> None:
        """To truncate `segment` to `end_offset` and remove the segments `gone`. Without a segment the log is emptied and begins there."""
        context, settings = log.context, log.settings
        self._directory = log.directory
        self._discards = tuple(log.discards)
        self._filesystem = MovableDirectory(context.filesystem, log.small_files)
        self._now_ms = context.clock.now_ms()
        self._jitter_ms = context.roll_jitter_ms(settings)
        self._settings = settings
        self._earlier = [] if segment is None else [base for base in log.segments.bases if base < segment.base_offset]
        self._lock = threading.Lock()
        self._has_run = False
        self.end_offset = end_offset
        self.log_start_offset = log_start_offset
        """The log start offset for which the producers are rebuilt."""
        self.gone = gone
        """Segments that are removed as a whole."""
        self.is_full = segment is None
        """Whether the log is emptied."""
        self.segment = segment
        """Last segment of the log. If the log is emptied, it exists once `run` has returned."""
        self.producers = log.producer_state
        self.snapshots: list[str] = []
        """Names of the snapshots to be deleted."""
        self.then = then
        self.retry_ms = _FIRST_RETRY_MS
        """Delay before the next repetition, if `run` fails."""
        self.error: Exception | None = None
        self.asked_meanwhile: list[Callable[[], None]] = []
        for each in (*gone, *([] if segment is None else [segment])):
            each.use_filesystem(self._filesystem)
        self.producers.use_filesystem(self._filesystem)

    def run(self) -> None:
        """Do the work, or wait until another thread has done it; for any thread. Raises its error, mostly OSError."""
        with self._lock:
            if not self._has_run:
                self._has_run = True
                try:
                    for discard in self._discards:
                        discard.run()
                    self.producers.finish_snapshot()
                    if self.segment is None:
                        self._begin_anew()
                    else:
                        self._cut(self.segment)
                except Exception as error:
                    self.error = error
        if self.error is not None:
            raise self.error

    def prepare_repetition(self) -> None:
        """Let `run` do the work again, after it has failed. Work that was done before is skipped, or repeated without an effect."""
        self._has_run = False
        self.error = None
        self.producers.map_end_offset = _UNKNOWN_OFFSET  # they may have been dropped, and not read again

    def _cut(self, segment: Segment) -> None:
        # The last one first, so that a crash leaves no gap.
        _discard(self.gone[::-1])
        _remove_unknown_files(self._filesystem, self._directory, {*self._earlier, segment.base_offset})
        self._sync_names()
        segment.truncate_to(self.end_offset, self._now_ms)
        self.snapshots += rename_snapshots(self._filesystem, self.producers, self.gone)
        segments = LogSegments()
        for base_offset in self._earlier:
            # New objects, because the event loop reads through those of the log meanwhile.
            segments.add(Segment(self._filesystem, self._directory, base_offset, self._settings, now_ms=self._now_ms))
        segments.add(segment)
        rebuild_producer_state(self.producers, segments, self.log_start_offset, self.end_offset, self._now_ms, yield_to_loop=yield_to_loop)

    def _begin_anew(self) -> None:
        # The last one first, so that a crash leaves no gap. The disk always has a segment of the log: the first one is removed after the
        # new one exists, or just before if both have the same name.
        offset = self.end_offset
        # The snapshots are deleted before. A snapshot beside the new segment would restore transactions that have no records any more.
        self.producers.truncate_fully_and_start_at(offset)
        self._filesystem.sync_directory(self._directory)
        left = self.gone[:1] if self.gone[0].base_offset != offset else []
        _discard(self.gone[len(left) :][::-1])
        _remove_unknown_files(self._filesystem, self._directory, {each.base_offset for each in left})
        segments = LogSegments()
        self.segment = Segment.create(
            self._filesystem, self._directory, offset, self._settings, now_ms=self._now_ms, roll_jitter_ms=self._jitter_ms
        )
        segments.add(self.segment)
        discard_files(left)
        self._sync_names()
        rebuild_producer_state(self.producers, segments, self.log_start_offset, offset, self._now_ms)

    def _sync_names(self) -> None:
        """Make the removal of segments durable before records are appended in their place.

        Some file systems may bring them back after a power cut, although the appended records were synced.
        """
        if self.gone:
            self._filesystem.sync_directory(self._directory)

    def give_back(self, filesystem: FileSystem, directory: str) -> list[str]:
        """Return everything to the event loop. `directory` is the current name of the directory. Returns the names of files to delete
        later."""
        for each in (*self.gone, *([] if self.segment is None else [self.segment])):
            each.use_filesystem(filesystem)
            each.move_to(directory)
        self.producers.use_filesystem(filesystem)
        self.producers.directory = directory
        return [*names_of(self.gone), *self.snapshots]


def truncate_to(log: "PartitionLog", offset: int) -> bool:
    """See `PartitionLog.truncate_to`."""
    return _run(log, _begin_cut(log, offset, ignore_result))


def truncate_fully_and_start_at(log: "PartitionLog", offset: int) -> None:
    """See `PartitionLog.truncate_fully_and_start_at`."""
    _run(log, _begin_anew(log, offset, ignore_result))


def truncate_in_thread(log: "PartitionLog", offset: int, then: OnTruncated) -> None:
    """See `PartitionLog.truncate_in_thread`."""
    _in_thread(log, lambda: _begin_cut(log, offset, then), lambda: truncate_in_thread(log, offset, then), then)


def truncate_fully_in_thread(log: "PartitionLog", offset: int, then: OnTruncated) -> None:
    """See `PartitionLog.truncate_fully_in_thread`."""
    _in_thread(log, lambda: _begin_anew(log, offset, then), lambda: truncate_fully_in_thread(log, offset, then), then)


def finish_truncations(log: "PartitionLog") -> None:
    """See `PartitionLog.finish_truncations`."""
    while (under_way := log.truncation) is not None:
        if under_way.error is not None:
            raise _failure_of(log, under_way.error)
        _run(log, under_way)


def _begin_cut(log: "PartitionLog", offset: int, then: OnTruncated) -> Truncation | None:
    """Begin a truncation to `offset`; None if nothing lies behind it."""
    if offset < 0:
        raise ValueError(f"truncation of {log.topic_partition} to offset {offset}")
    _check_whole(log)
    if offset >= log.log_end_offset:
        log.forget_unwritten_epoch()
        return None
    if offset < log.segments.first.base_offset:
        return _begin_anew(log, offset, then)
    logger.info("%s: truncated to offset %d, was %d", log.topic_partition, offset, log.log_end_offset)
    gone = [segment for segment in log.segments if segment.base_offset > offset]
    segment = log.segments.floor(offset)
    assert segment is not None
    begun = Truncation(log, offset, min(log.log_start_offset, offset), segment, gone, then)
    begun.producers.map_end_offset = log.log_end_offset  # appends do not update it
    log.leader_epochs.truncate_from_end(offset)
    log.end_at(begun, segment.base_offset, segment.size)
    return begun


def _begin_anew(log: "PartitionLog", offset: int, then: OnTruncated) -> Truncation:
    _check_whole(log)
    logger.info("%s: truncated fully, begins at offset %d, ended at %d", log.topic_partition, offset, log.log_end_offset)
    begun = Truncation(log, offset, offset, None, list(log.segments), then)
    try:
        log.leader_epochs.clear()
        log.leader_epochs.flush()
    except OSError as error:
        raise log.disk_failure(log.leader_epochs.path, error) from error
    log.end_at(begun, offset, 0)
    return begun


def _check_whole(log: "PartitionLog") -> None:
    if log.is_closed:
        raise LogClosed(log.topic_partition)
    if log.truncation is not None:
        raise LogBeingTruncated(log.topic_partition)
    try:
        log.finish_rolls()
    except OSError as error:
        raise log.disk_failure(log.directory, error) from error


def _run(log: "PartitionLog", begun: Truncation | None) -> bool:
    if begun is None:
        return False
    error: Exception | None = None
    try:
        begun.run()
    except Exception as found:
        error = found
    failure = _finish(log, begun, error)
    if failure is not None:
        raise failure
    return True


def _in_thread(log: "PartitionLog", begin: Callable[[], Truncation | None], again: Callable[[], None], then: OnTruncated) -> None:
    under_way = log.truncation
    if under_way is not None and under_way.error is None and not log.is_closed:
        under_way.asked_meanwhile.append(again)
        return
    try:
        begun = begin()
    except Exception as error:
        then(error)
        return
    if begun is None:
        then(None)
        return
    _submit(log, begun)


def _submit(log: "PartitionLog", begun: Truncation) -> None:
    left = 2  # the thread, and the checkpoints with the new recovery point and log start offset

    def on_end(error: BaseException | None) -> None:
        nonlocal left
        if error is not None and not isinstance(error, Exception):
            raise error
        left -= 1
        if left == 0 or (left > 0 and error is not None):
            left = 0
            _finish(log, begun, error)

    log.context.when_checkpointed(log.log_dir, on_end)
    # One queue per log directory, because each may be a disk of its own.
    log.context.submit(f"{TRUNCATE_LOG} {log.log_dir}", begun.run, on_end)


def _finish(log: "PartitionLog", begun: Truncation, error: Exception | None) -> Exception | None:
    """End a truncation. Returns the error.

    After a disk failure the log stays unusable and can only be closed. After another error it stays unusable until a repetition succeeds.
    """
    if log.truncation is not begun:
        return None  # it was finished before
    failure = None
    if error is not None:
        failure = _failure_of(log, error)
    elif log.is_closed:
        failure = LogClosed(log.topic_partition)
    else:
        _give_back(log, begun)
    begun.error = failure
    if isinstance(failure, LogDirFailure):
        log.context.on_failure(failure)
    if failure is None or log.is_closed:
        log.truncation = None
    elif not isinstance(failure, LogDirFailure):
        _repeat_later(log, begun, failure)
    asked, begun.asked_meanwhile = begun.asked_meanwhile, []
    begun.then(failure)
    for again in asked:
        again()
    return failure


def _repeat_later(log: "PartitionLog", begun: Truncation, error: Exception) -> None:
    unforeseen = None if isinstance(error, RecordFormatError | StorageError) else error
    logger.error(
        "%s: it could not be truncated to offset %d (%r); the log is not used before it is truncated; trying again in %d ms",
        log.topic_partition, begun.end_offset, error, begun.retry_ms, exc_info=unforeseen,
    )  # fmt: skip
    log.context.schedule(TRUNCATE_LOG, begun.retry_ms, 0, lambda: _repeat(log, begun))
    begun.retry_ms = min(2 * begun.retry_ms, _LAST_RETRY_MS)


def _repeat(log: "PartitionLog", begun: Truncation) -> None:
    if log.is_closed:
        log.truncation = None
        return
    begun.prepare_repetition()
    begun.then = ignore_result  # it was called after the first attempt
    _submit(log, begun)


def _give_back(log: "PartitionLog", begun: Truncation) -> None:
    segment, producers = begun.segment, begun.producers
    assert segment is not None
    left_over = begun.give_back(log.context.filesystem, log.directory)
    log.reopen(segment, producers)
    if log.log_start_offset > begun.log_start_offset:
        producers.on_log_start_offset_incremented(log.log_start_offset)
    delete_later(log, left_over)


def _failure_of(log: "PartitionLog", error: Exception) -> Exception:
    if isinstance(error, OSError):
        try:
            return log.disk_failure(log.directory, error)
        except LogClosed as closed:
            return closed
    return error


def _discard(segments: list[Segment]) -> None:
    for at in range(0, len(segments), _SEGMENTS_AT_ONCE):
        discard_files(segments[at : at + _SEGMENTS_AT_ONCE])
        yield_to_loop()


def _remove_unknown_files(filesystem: FileSystem, directory: str, known: set[int]) -> None:
    """Delete segments behind the end that a failed roll left. The next start would take them for a part of the log."""
    for name in filesystem.list_directory(directory):
        offset = offset_of_file_name(name)
        if name.endswith((LOG_SUFFIX, *INDEX_SUFFIXES)) and offset is not None and offset not in known:
            logger.warning("%s/%s is not part of the log; deleted", directory, name)
            filesystem.unlink(f"{directory}/{name}")
