"""Removes segments from a log: old ones, and those that the cleaner has replaced.

Retention decides about old segments (`retention`), the cleaner about replaced ones. The log loses them at once, and a thread renames their
files to `.deleted` (`discards`, `swaps`). The files are removed after `file.delete.delay.ms`, so that a read in progress still finds them.
The functions that get the log are called on the event loop, some of them by the methods of `PartitionLog` with the same names.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.storage.disk.file_names import DELETED_SUFFIX
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import LogClosed, LogDirFailure, StorageError
from ottla.storage.producers.state_manager import ProducerStateManager
from ottla.storage.segment.discards import DISCARD_SEGMENTS, Discard
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.swaps import Swap

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

OnReplaced = Callable[[StorageError | None], None]
ShouldDelete = Callable[[Segment, Segment | None], bool]
"""Whether a segment should be deleted, given the one that follows it."""
NO_LIMIT = 2**31 - 1


def ignore_result(_: Exception | None) -> None:
    """Callback of callers that ignore the result."""


def delete_old_segments(log: "PartitionLog", should_delete: ShouldDelete, reason: str, at_most: int) -> int:
    """See `PartitionLog.delete_old_segments`.

    Deletes none while a thread writes a snapshot of producers, which may soon be the only trace of them. The next call does.
    """
    if _waits_for_snapshot(log):
        return 0
    segments = list(log.segments)
    deletable = []
    for at, segment in enumerate(segments[:at_most]):
        following = segments[at + 1] if at + 1 < len(segments) else None
        if following is None and segment.size == 0:
            break
        upper_bound = log.log_end_offset if following is None else following.base_offset
        if log.high_watermark < upper_bound or not should_delete(segment, following):
            break
        deletable.append(segment)
    if not deletable:
        return 0
    try:
        log.finish_rolls()
        if len(deletable) == len(segments):
            log.roll()
            log.finish_rolls()
            if _waits_for_snapshot(log):
                return 0
        bases = ", ".join(str(segment.base_offset) for segment in deletable)
        logger.info("%s: segments %s are deleted: %s", log.topic_partition, bases, reason)
        _remove_segments(log, deletable)
    except OSError as error:
        raise log.disk_failure(log.directory, error) from error
    return len(deletable)


def replace_segments(log: "PartitionLog", base_offset: int, old: Sequence[Segment], then: OnReplaced) -> Swap:
    """See `PartitionLog.replace_segments`."""
    current = set(log.segments)
    replaced = [segment for segment in old if segment in current]
    try:
        log.finish_rolls()
        swap = Swap(log, base_offset, replaced, [])
    except OSError as error:
        raise log.disk_failure(log.directory, error) from error
    swap.snapshots = _forget_snapshots(log, [segment for segment in replaced if segment.base_offset != base_offset])
    for segment in replaced:
        log.segments.remove(segment)
    log.segments.add(swap.cleaned)
    log.reader.hints.clear()
    _run(log, swap, then)
    return swap


def finish_discards(log: "PartitionLog") -> None:
    """Complete all discards. Blocks; may raise OSError."""
    for discard in tuple(log.discards):
        discard.run()


def discard_segments(log: "PartitionLog", segments: Sequence[Segment]) -> None:
    """Take `segments` out of the log and rename their files to `.deleted`. The files are removed later. May raise OSError."""
    if not segments:
        return
    log.reader.hints.clear()
    for segment in segments:
        log.segments.remove(segment)
    discard_files(segments)
    delete_later(log, names_of(segments))


def delete_later(log: "PartitionLog", names: Sequence[str]) -> None:
    """Remove files of the log's directory after `file.delete.delay.ms`, in a thread, even if the directory is renamed meanwhile."""
    if not names:
        return
    small_files = log.small_files

    def delete_all() -> None:
        for name in names:
            try:
                small_files.remove(name)
            except OSError as error:
                # The name ends with .deleted, so the next start tries again.
                logger.warning(
                    "%s/%s cannot be deleted: %s; the next start tries again", small_files.directory, name, error.strerror or error
                )

    log.context.scheduler.schedule_once("delete-file", delete_all, log.settings.file_delete_delay_ms)


def _waits_for_snapshot(log: "PartitionLog") -> bool:
    producers = log.producer_state
    return producers.writing is not None or log.recovery_point < producers.unsafe_below


def _remove_segments(log: "PartitionLog", deletable: Sequence[Segment]) -> None:
    """Delete the oldest segments, `deletable`, but not all of the log, and move the log start offset behind them."""
    following = log.segments.higher(deletable[-1].base_offset)
    if following is not None:
        log.increment_log_start_offset(following.base_offset, "segment deletion")
    log.reader.hints.clear()
    for segment in deletable:
        log.segments.remove(segment)
    _run(log, Discard(log, deletable, _forget_snapshots(log, deletable)), ignore_result)


def _run(log: "PartitionLog", discard: Discard, then: OnReplaced) -> None:
    log.discards.append(discard)
    log.context.submit(f"{DISCARD_SEGMENTS} {log.log_dir}", discard.run, lambda error: _on_discarded(log, discard, error, then))


def _on_discarded(log: "PartitionLog", discard: Discard, error: BaseException | None, then: OnReplaced) -> None:
    log.discards.remove(discard)
    discard.give_back(log.context.filesystem, log.directory)
    if error is None:
        delete_later(log, [*names_of(discard.segments), *(name + DELETED_SUFFIX for name in discard.snapshots)])
        then(None)
        return
    if log.is_closed:
        then(LogClosed(log.topic_partition))
        return
    path, reason = log.directory, str(error)
    if isinstance(error, OSError):
        path, reason = str(error.filename or path), error.strerror or reason
    else:  # some of the files may have their old names
        logger.error("%s: the files of removed segments cannot be renamed", log.topic_partition, exc_info=error)
    failure = LogDirFailure(log.log_dir, path, reason)
    log.context.on_failure(failure)
    then(failure)


def _forget_snapshots(log: "PartitionLog", beside: Sequence[Segment]) -> list[str]:
    """Forget the producer snapshots that belong to the segments `beside`. Returns the names of their files."""
    paths = [log.producer_state.forget_snapshot(segment.base_offset) for segment in beside]
    return [path.rpartition("/")[2] for path in paths if path is not None]


def discard_files(segments: Sequence[Segment]) -> None:
    """Rename the files of `segments` to `.deleted`, in that order. May raise OSError."""
    for segment in segments:
        segment.change_suffix(DELETED_SUFFIX)


def rename_snapshots(filesystem: FileSystem, producers: ProducerStateManager, segments: Sequence[Segment]) -> list[str]:
    """Rename the producer snapshots that belong to `segments` to `.deleted`. Returns their new names. May raise OSError."""
    names = []
    for segment in segments:
        path = producers.forget_snapshot(segment.base_offset)
        if path is not None and filesystem.exists(path):
            filesystem.rename(path, path + DELETED_SUFFIX)
            names.append(path.rpartition("/")[2] + DELETED_SUFFIX)
    return names


def names_of(segments: Iterable[Segment]) -> list[str]:
    """The names of the segments' files in the log's directory."""
    return [path.rpartition("/")[2] for segment in segments for path in segment.paths]
