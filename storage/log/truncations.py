"""Begins, ends and repeats the truncations of one log (see `truncation`)."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.records.errors import RecordFormatError
from ottla.storage.errors import LogBeingTruncated, LogClosed, LogDirFailure, StorageError
from ottla.storage.log.discards import ignore_result
from ottla.storage.log.truncation import OnTruncated, Truncation
from ottla.storage.remote.lineage import Epochs

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

TRUNCATE_LOG = "truncate-log"
_LAST_RETRY_MS = 60_000
"""The longest delay before a truncation is repeated, milliseconds; each is twice the one before."""


class RemoteRecords(NamedTuple):
    """The records before the beginning of a log that are in the remote store only: from `log_start_offset` on, with their leader epochs.

    `snapshot` has the producers that they left.
    """

    log_start_offset: int
    epochs: Epochs = ()
    snapshot: bytes | None = None


class Truncations:
    """The truncations of one log, one at a time. Called on the event loop.

    All of them raise or report LogDirFailure, LogClosed, and, where they may not wait, LogBeingTruncated.
    """

    __slots__ = ("_log", "current")

    def __init__(self, log: "PartitionLog") -> None:
        """`PartitionLog.end_at` is called when `log` loses its end, and `PartitionLog.reopen` when it is whole again."""
        self._log = log
        self.current: Truncation | None = None
        """The truncation in progress. Meanwhile nothing is appended, and nothing is read of the segment being cut."""

    def truncate_to(self, offset: int) -> bool:
        """Remove every batch that ends at or after `offset`. Returns False if there was none. Blocks."""
        begun = self._begin_cut(offset, ignore_result)
        if begun is None:
            return False
        self._run(begun)
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove everything, so that the log is empty and begins at `offset`. Blocks.

        With a `log_start_offset` the log begins there, and the records from there on are in the remote store only.
        """
        self._run(self._begin_anew(offset, ignore_result, None if log_start_offset is None else RemoteRecords(log_start_offset)))

    def truncate_in_thread(self, offset: int, then: OnTruncated) -> None:
        """As `truncate_to`, but without blocking. `then` is called on the loop, with the error or None, when the log is usable again.

        A truncation that is requested during another one follows it.
        """
        self._in_thread(lambda: self._begin_cut(offset, then), lambda: self.truncate_in_thread(offset, then), then)

    def truncate_fully_in_thread(self, offset: int, then: OnTruncated, remote: RemoteRecords | None = None) -> None:
        """As `truncate_fully_and_start_at`, without blocking, as `truncate_in_thread`. `remote` has what is known of the records before."""
        self._in_thread(lambda: self._begin_anew(offset, then, remote), lambda: self.truncate_fully_in_thread(offset, then, remote), then)

    def finish(self) -> None:
        """Wait until no truncation is in progress. Blocks; for the time after the loop has stopped."""
        while (begun := self.current) is not None:
            if begun.error is not None:
                raise self._failure_of(begun.error)
            self._run(begun)

    def _begin_cut(self, offset: int, then: OnTruncated) -> Truncation | None:
        """Begin a truncation to `offset`; None if nothing lies behind it."""
        log = self._log
        if offset < 0:
            raise ValueError(f"truncation of {log.topic_partition} to offset {offset}")
        self._check_whole()
        if offset >= log.log_end_offset:
            log.forget_unwritten_epoch()
            return None
        if offset < log.segments.first.base_offset:
            if log.tier is None:
                return self._begin_anew(offset, then)
            epochs = [(epoch, start) for epoch, start in log.leader_epochs.entries if start < offset]
            return self._begin_anew(offset, then, RemoteRecords(min(log.log_start_offset, offset), epochs))
        logger.info("%s: truncated to offset %d, was %d", log.topic_partition, offset, log.log_end_offset)
        gone = [segment for segment in log.segments if segment.base_offset > offset]
        segment = log.segments.floor(offset)
        assert segment is not None
        begun = Truncation(log, offset, min(log.log_start_offset, offset), segment, gone, then)
        begun.producers.map_end_offset = log.log_end_offset  # appends do not update it
        log.leader_epochs.truncate_from_end(offset)
        self._begin(begun, segment.base_offset, segment.size)
        return begun

    def _begin_anew(self, offset: int, then: OnTruncated, remote: RemoteRecords | None = None) -> Truncation:
        log = self._log
        before = remote or RemoteRecords(offset)
        self._check_whole()
        logger.info("%s: truncated fully, begins at offset %d, ended at %d", log.topic_partition, offset, log.log_end_offset)
        begun = Truncation(log, offset, before.log_start_offset, None, list(log.segments), then, before.snapshot)
        try:
            # Without their epochs, remote records would count as those of an unclean election, and be removed.
            log.leader_epochs.replace(before.epochs)
            log.leader_epochs.flush()
        except OSError as error:
            raise log.files.failure(error, log.leader_epochs.path) from error
        self._begin(begun, offset, 0)
        return begun

    def _check_whole(self) -> None:
        log = self._log
        if log.is_closed:
            raise LogClosed(log.topic_partition)
        if self.current is not None:
            raise LogBeingTruncated(log.topic_partition)
        try:
            log.rolls.finish()
        except OSError as error:
            raise log.files.failure(error) from error

    def _begin(self, begun: Truncation, base_offset: int, size: int) -> None:
        self.current = begun
        self._log.end_at(begun, base_offset, size)

    def _run(self, begun: Truncation) -> None:
        error: Exception | None = None
        try:
            begun.run()
        except Exception as found:
            error = found
        failure = self._finish(begun, error)
        if failure is not None:
            raise failure

    def _in_thread(self, begin: Callable[[], Truncation | None], again: Callable[[], None], then: OnTruncated) -> None:
        under_way = self.current
        if under_way is not None and under_way.error is None and not self._log.is_closed:
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
        self._submit(begun)

    def _submit(self, begun: Truncation) -> None:
        files = self._log.files
        left = 2  # the thread, and the checkpoints with the new recovery point and log start offset

        def on_end(error: BaseException | None) -> None:
            nonlocal left
            if error is not None and not isinstance(error, Exception):
                raise error
            left -= 1
            if left == 0 or (left > 0 and error is not None):
                left = 0
                self._finish(begun, error)

        files.context.when_checkpointed(files.log_dir, on_end)
        # One queue per log directory, because each may be a disk of its own.
        files.context.submit(f"{TRUNCATE_LOG} {files.log_dir}", begun.run, on_end)

    def _finish(self, begun: Truncation, error: Exception | None) -> Exception | None:
        """End a truncation. Returns the error.

        After a disk failure the log stays unusable and can only be closed. After another error it stays unusable until a repetition
        succeeds.
        """
        log = self._log
        if self.current is not begun:
            return None  # it was finished before
        failure = None
        if error is not None:
            failure = self._failure_of(error)
        elif log.is_closed:
            failure = LogClosed(log.topic_partition)
        else:
            self._give_back(begun)
        begun.error = failure
        if isinstance(failure, LogDirFailure):
            log.context.on_failure(failure)
        if failure is None or log.is_closed:
            self.current = None
        elif not isinstance(failure, LogDirFailure) or failure.passes:
            self._repeat_later(begun, failure)
        asked, begun.asked_meanwhile = begun.asked_meanwhile, []
        begun.then(failure)
        for again in asked:
            again()
        return failure

    def _repeat_later(self, begun: Truncation, error: Exception) -> None:
        unforeseen = None if isinstance(error, RecordFormatError | StorageError) else error
        logger.error(
            "%s: it could not be truncated to offset %d (%r); the log is not used before it is truncated; trying again in %d ms",
            self._log.topic_partition, begun.end_offset, error, begun.retry_ms, exc_info=unforeseen,
        )  # fmt: skip
        self._log.context.schedule(TRUNCATE_LOG, begun.retry_ms, 0, lambda: self._repeat(begun))
        begun.retry_ms = min(2 * begun.retry_ms, _LAST_RETRY_MS)

    def _repeat(self, begun: Truncation) -> None:
        if self._log.is_closed:
            self.current = None
            return
        begun.prepare_repetition()
        begun.then = ignore_result  # it was called after the first attempt
        self._submit(begun)

    def _give_back(self, begun: Truncation) -> None:
        log = self._log
        segment, producers = begun.segment, begun.producers
        assert segment is not None
        left_over = begun.give_back(log.context.filesystem, log.directory)
        log.reopen(segment, producers)
        if log.log_start_offset > begun.log_start_offset:
            producers.on_log_start_offset_incremented(log.log_start_offset)
        log.discards.delete_later(left_over)

    def _failure_of(self, error: Exception) -> Exception:
        if isinstance(error, OSError):
            try:
                return self._log.files.failure(error)
            except LogClosed as closed:
                return closed
        return error
