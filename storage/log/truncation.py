"""Cutting a log at its end: methods of `PartitionLog`, kept in a file of their own.

A follower does it when its leader's history differs from its own. To cut a large file, to rename many and to read for producers what is
left takes long, so a thread does it (`Truncation.run`). As soon as it is asked for, the log says that it ends where it is to end, its
recovery point and leader epochs are those of the shorter log, and a `SegmentBeingTruncated` stands in the place of the segment that is cut:
whoever appends or reads there meanwhile is told to come again. When the thread is done, the segment takes its place (`_finish`).

Whoever calls `truncate_to` or `truncate_fully_and_start_at` waits for all of that. A crash in between finds a log that ends where it was
cut or, for whole segments, later: what is too long then is cut again, for it still differs from the leader's.
"""

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from storage.disk.file_names import INDEX_SUFFIXES, LOG_SUFFIX, offset_of_file_name
from storage.disk.filesystem import FileSystem
from storage.disk.giving_way import give_way
from storage.disk.movable_directory import MovableDirectory
from storage.errors import LogBeingTruncated, LogClosed, LogDirFailure, UnexpectedAppendOffset
from storage.log.deletion import delete_later, discard_files, names_of, rename_snapshots
from storage.log.producer_replay import rebuild_producer_state
from storage.producers.state_manager import ProducerStateManager
from storage.segment.log_segments import LogSegments
from storage.segment.segment import Segment
from storage.segment.truncated_segment import SegmentBeingTruncated

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

Then = Callable[[Exception | None], None]
_NAME = "truncate-log"
_SEGMENTS_AT_ONCE = 10


class Truncation:
    """A cut that is under way. What it holds is the thread's until `run` has returned."""

    __slots__ = (
        "_directory",
        "_discards",
        "_earlier",
        "_end_offset",
        "_filesystem",
        "_gone",
        "_has_run",
        "_jitter_ms",
        "_lock",
        "_log_start_offset",
        "_now_ms",
        "_settings",
        "asked_meanwhile",
        "error",
        "producers",
        "segment",
        "snapshots",
        "then",
    )

    def __init__(self, log: "PartitionLog", end_offset: int, segment: Segment | None, gone: list[Segment], then: Then) -> None:
        """To cut `segment` at `end_offset`, without the `gone` ones; without a segment, to begin anew there."""
        context, settings = log.context, log.settings
        self._directory = log.directory
        self._discards = tuple(log.discards)
        self._filesystem = MovableDirectory(context.filesystem, log.small_files)
        self._now_ms = context.clock.now_ms()
        self._jitter_ms = context.roll_jitter_ms(settings)
        self._settings = settings
        self._earlier = [] if segment is None else [base for base in log.segments.bases if base < segment.base_offset]
        self._end_offset = end_offset
        self._log_start_offset = log.log_start_offset
        self._gone = gone
        self._lock = threading.Lock()
        self._has_run = False
        self.segment = segment
        """The last one of the log; when it begins anew, once `run` has returned."""
        self.producers = log.producer_state
        self.snapshots: list[str] = []
        """The names of those that are to be deleted."""
        self.then = then
        self.error: Exception | None = None
        self.asked_meanwhile: list[Callable[[], None]] = []
        for each in (*gone, *([] if segment is None else [segment])):
            each.use_filesystem(self._filesystem)
        self.producers.use_filesystem(self._filesystem)

    @property
    def log_start_offset(self) -> int:
        """What the producers were told of it."""
        return self._log_start_offset

    def run(self) -> None:
        """Blocks until it is done, whoever does it; for any thread. Raises what went wrong, mostly OSError."""
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

    def _cut(self, segment: Segment) -> None:
        # The last one first: a crash leaves no hole.
        _discard(self._gone[::-1])
        _remove_unknown_files(self._filesystem, self._directory, {*self._earlier, segment.base_offset})
        segment.truncate_to(self._end_offset, self._now_ms)
        self.snapshots = rename_snapshots(self._filesystem, self.producers, self._gone)
        segments = LogSegments()
        for base_offset in self._earlier:
            # Those of the log are read on the loop meanwhile.
            segments.add(Segment(self._filesystem, self._directory, base_offset, self._settings, now_ms=self._now_ms))
        segments.add(segment)
        rebuild_producer_state(self.producers, segments, self._log_start_offset, self._end_offset, self._now_ms, give_way=give_way)

    def _begin_anew(self) -> None:
        # The last one first: a crash leaves no hole. And a log is never without a segment, not even on the disk: the first one goes when
        # the new one is there, or just before it when both have the same name.
        offset = self._end_offset
        # The snapshots go before that, for good: beside a new segment one would bring back transactions that nothing is left of.
        self.producers.truncate_fully_and_start_at(offset)
        self._filesystem.sync_directory(self._directory)
        left = self._gone[:1] if self._gone[0].base_offset != offset else []
        _discard(self._gone[len(left) :][::-1])
        _remove_unknown_files(self._filesystem, self._directory, {each.base_offset for each in left})
        segments = LogSegments()
        self.segment = Segment.create(
            self._filesystem, self._directory, offset, self._settings, now_ms=self._now_ms, roll_jitter_ms=self._jitter_ms
        )
        segments.add(self.segment)
        discard_files(left)
        rebuild_producer_state(self.producers, segments, self._log_start_offset, offset, self._now_ms)

    def give_back(self, filesystem: FileSystem, directory: str) -> list[str]:
        """Everything is the loop's again, in the directory as it is called now; returns the names of the files that are left over."""
        for each in (*self._gone, *([] if self.segment is None else [self.segment])):
            each.use_filesystem(filesystem)
            each.move_to(directory)
        self.producers.use_filesystem(filesystem)
        self.producers.directory = directory
        return [*names_of(self._gone), *self.snapshots]


def truncate_to(self: "PartitionLog", offset: int) -> bool:
    """Removes every batch that ends at or after `offset`; False if there was none. Blocks.

    Raises LogDirFailure, LogClosed, LogBeingTruncated.
    """
    return _run_here(self, _begin_cut(self, offset, _say_nothing))


def truncate_fully_and_start_at(self: "PartitionLog", offset: int, log_start_offset: int | None = None) -> None:
    """Removes everything; the log is empty and begins at `offset`. Blocks. Raises as `truncate_to` does."""
    _run_here(self, _begin_anew(self, offset, log_start_offset, _say_nothing))


def truncate_in_thread(self: "PartitionLog", offset: int, then: Then) -> None:
    """As `truncate_to`, but does not block: `then` is called, on the loop, when the log is whole again, with what went wrong if it did.

    One that is asked for while another is under way follows it.
    """
    _in_thread(self, lambda: _begin_cut(self, offset, then), lambda: truncate_in_thread(self, offset, then), then)


def truncate_fully_in_thread(self: "PartitionLog", offset: int, then: Then) -> None:
    """As `truncate_fully_and_start_at`, in the way of `truncate_in_thread`."""
    _in_thread(self, lambda: _begin_anew(self, offset, None, then), lambda: truncate_fully_in_thread(self, offset, then), then)


def begins_inside_batch(self: "PartitionLog", unexpected: UnexpectedAppendOffset) -> bool:
    """Whether the log is empty and begins inside the batch that could not be appended, as a leader's does after DeleteRecords.

    Then it is to be truncated to `unexpected.first_offset`, and to begin with that batch.
    """
    end_offset = self.log_end_offset
    return self.log_start_offset == end_offset and unexpected.first_offset < end_offset <= unexpected.last_offset


def finish_truncations(self: "PartitionLog") -> None:
    """Waits until none is under way any more. Blocks; for the time when the loop runs no more. Raises LogDirFailure."""
    while (under_way := self.truncation) is not None:
        if under_way.error is not None:
            raise _failure(self, under_way.error)
        _run_here(self, under_way)


# ---- beginning: the log says that it is shorter


def _begin_cut(self: "PartitionLog", offset: int, then: Then) -> Truncation | None:
    """None if nothing is to be cut."""
    if offset < 0:
        raise ValueError(f"truncation of {self.topic_partition} to offset {offset}")
    _check_whole(self)
    if offset >= self.log_end_offset:
        # There may still be an epoch that begins at the end, of a leader that never wrote.
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        self.latest_epoch = self.leader_epochs.latest_epoch
        return None
    if offset < self.segments.first.base_offset:
        return _begin_anew(self, offset, None, then)
    log.info("%s: truncated to offset %d, was %d", self.topic_partition, offset, self.log_end_offset)
    gone = [segment for segment in self.segments if segment.base_offset > offset]
    segment = self.segments.floor(offset)
    assert segment is not None
    self.log_start_offset = min(self.log_start_offset, offset)
    truncation = Truncation(self, offset, segment, gone, then)
    truncation.producers.map_end_offset = self.log_end_offset  # appends do not keep it
    self.leader_epochs.truncate_from_end(offset)
    for each in gone:
        self.segments.remove(each)
    _begin(self, truncation, offset, segment.base_offset, segment.size)
    return truncation


def _begin_anew(self: "PartitionLog", offset: int, log_start_offset: int | None, then: Then) -> Truncation:
    _check_whole(self)
    log.info("%s: truncated fully, begins at offset %d, ended at %d", self.topic_partition, offset, self.log_end_offset)
    self.log_start_offset = offset if log_start_offset is None else log_start_offset
    truncation = Truncation(self, offset, None, list(self.segments), then)
    try:
        self.leader_epochs.clear()
        self.leader_epochs.flush()
    except OSError as error:
        raise self.disk_failure(self.leader_epochs.path, error) from error
    self.high_watermark = offset
    self.segments.clear()
    _begin(self, truncation, offset, offset, 0)
    return truncation


def _check_whole(self: "PartitionLog") -> None:
    if self.is_closed:
        raise LogClosed(self.topic_partition)
    if self.truncation is not None:
        raise LogBeingTruncated(self.topic_partition)
    try:
        self.finish_rolls()
    except OSError as error:
        raise self.disk_failure(self.directory, error) from error


def _begin(self: "PartitionLog", truncation: Truncation, offset: int, base_offset: int, size: int) -> None:
    context = self.context
    self.truncation = truncation
    self.read_hints.clear()
    self.active_segment = SegmentBeingTruncated(self.topic_partition, context.filesystem, self.directory, base_offset, size, self.settings)
    self.segments.add(self.active_segment)
    # Nobody asks it anything: who reads or appends is refused before.
    self.producer_state = ProducerStateManager(
        self.topic_partition, self.directory, context.producer_id_expiration_ms, context.filesystem, ()
    )
    self.log_end_offset = offset
    self.latest_epoch = self.leader_epochs.latest_epoch
    self.recovery_point = min(self.recovery_point, offset)
    for plan in self.flushes:
        plan.recovery_point = min(plan.recovery_point, offset)
    self.next_flush_offset = self.recovery_point + self.settings.flush_messages - 1
    self.high_watermark = max(min(self.high_watermark, offset), self.log_start_offset)
    context.on_truncated(self)


# ---- doing, and finishing


def _run_here(self: "PartitionLog", truncation: Truncation | None) -> bool:
    if truncation is None:
        return False
    error: Exception | None = None
    try:
        truncation.run()
    except Exception as found:
        error = found
    failure = _finish(self, truncation, error)
    if failure is not None:
        raise failure
    return True


def _in_thread(self: "PartitionLog", begin: Callable[[], Truncation | None], again: Callable[[], None], then: Then) -> None:
    under_way = self.truncation
    if under_way is not None and under_way.error is None and not self.is_closed:
        under_way.asked_meanwhile.append(again)
        return
    try:
        truncation = begin()
    except Exception as error:
        then(error)
        return
    if truncation is None:
        then(None)
        return

    def finish(error: BaseException | None) -> None:
        if error is not None and not isinstance(error, Exception):
            raise error
        _finish(self, truncation, error)

    # By directory: each is a disk of its own.
    self.context.submit(f"{_NAME} {self.log_dir}", truncation.run, finish)


def _finish(self: "PartitionLog", truncation: Truncation, error: Exception | None) -> Exception | None:
    """The thread has done its part; returns what went wrong. After a failure the log stays as it is, and can only be closed."""
    if self.truncation is not truncation:
        return None  # somebody else was faster
    failure = None
    if error is not None:
        failure = _failure(self, error)
    elif self.is_closed:
        failure = LogClosed(self.topic_partition)
    else:
        _take_back(self, truncation)
    if isinstance(failure, LogDirFailure):
        self.context.on_failure(failure)
    if failure is None or self.is_closed:
        self.truncation = None
    asked, truncation.asked_meanwhile = truncation.asked_meanwhile, []
    truncation.then(failure)
    for again in asked:
        again()
    return failure


def _take_back(self: "PartitionLog", truncation: Truncation) -> None:
    segment, producers = truncation.segment, truncation.producers
    assert segment is not None
    filesystem = self.context.filesystem
    left_over = truncation.give_back(filesystem, self.directory)
    segment.update_settings(self.settings)
    self.segments.add(segment)
    self.active_segment = segment
    producers.producer_id_expiration_ms = self.producer_state.producer_id_expiration_ms
    self.producer_state = producers
    producers.state.on_high_watermark(self.high_watermark)
    if self.log_start_offset > truncation.log_start_offset:
        producers.on_log_start_offset_incremented(self.log_start_offset)
    delete_later(self, left_over)


def _failure(self: "PartitionLog", error: Exception) -> Exception:
    if isinstance(error, OSError):
        try:
            return self.disk_failure(self.directory, error)
        except LogClosed as closed:
            return closed
    return error


def _discard(segments: list[Segment]) -> None:
    for at in range(0, len(segments), _SEGMENTS_AT_ONCE):
        discard_files(segments[at : at + _SEGMENTS_AT_ONCE])
        give_way()


def _remove_unknown_files(filesystem: FileSystem, directory: str, known: set[int]) -> None:
    """A roll that failed half way may have left a segment behind the end; the next start would take it for a part of the log."""
    for name in filesystem.list_directory(directory):
        offset = offset_of_file_name(name)
        if name.endswith((LOG_SUFFIX, *INDEX_SUFFIXES)) and offset is not None and offset not in known:
            log.warning("%s/%s is no part of the log; deleted", directory, name)
            filesystem.unlink(f"{directory}/{name}")


def _say_nothing(_: Exception | None) -> None:
    pass
