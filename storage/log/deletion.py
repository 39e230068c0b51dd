"""Taking segments out of a log: methods of `PartitionLog`, kept in a file of their own.

Files are renamed to `.deleted` and removed after `file.delete.delay.ms`, so that a read that is under way still finds them. Retention
decides which segments go and calls `delete_old_segments`, the cleaner calls `replace_segments`; both have a thread do the renaming
(`discards`, `swaps`).
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from storage.disk.file_names import DELETED_SUFFIX
from storage.disk.filesystem import FileSystem
from storage.errors import LogClosed, LogDirFailure, StorageError
from storage.producers.state_manager import ProducerStateManager
from storage.segment.discards import DISCARD_SEGMENTS, Discard
from storage.segment.segment import Segment
from storage.segment.swaps import Swap

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

Then = Callable[[StorageError | None], None]
NO_LIMIT = 2**31 - 1


def _say_nothing(_: StorageError | None) -> None:
    pass


def delete_old_segments(
    self: "PartitionLog", should_delete: Callable[[Segment, Segment | None], bool], reason: str, at_most: int = NO_LIMIT
) -> int:
    """Deletes segments from the oldest on, as long as `should_delete(segment, next)` says so and the high watermark is past them.

    No more than `at_most`. When that takes the active one too, an empty one follows. Moves the log start offset. Returns how many; raises
    LogDirFailure.

    None while a thread writes a snapshot of producers, which may be all that is left of them when the segments are gone: the next time.
    """
    if _waits_for_snapshot(self):
        return 0
    segments = list(self.segments)
    deletable = []
    for at, segment in enumerate(segments[:at_most]):
        following = segments[at + 1] if at + 1 < len(segments) else None
        if following is None and segment.size == 0:
            break
        upper_bound = self.log_end_offset if following is None else following.base_offset
        if self.high_watermark < upper_bound or not should_delete(segment, following):
            break
        deletable.append(segment)
    if not deletable:
        return 0
    try:
        self.finish_rolls()
        if len(deletable) == len(segments):
            self.roll()
            self.finish_rolls()
            if _waits_for_snapshot(self):
                return 0
        log.info("%s: segments %s are deleted: %s", self.topic_partition, _bases(deletable), reason)
        _remove_segments(self, deletable)
    except OSError as error:
        raise self.disk_failure(self.directory, error) from error
    return len(deletable)


def _waits_for_snapshot(self: "PartitionLog") -> bool:
    producers = self.producer_state
    return producers.writing is not None or self.recovery_point < producers.unsafe_below


def _remove_segments(self: "PartitionLog", deletable: Sequence[Segment]) -> None:
    """Deletes the oldest segments, `deletable`, but not all, and moves the log start offset behind them."""
    following = self.segments.higher(deletable[-1].base_offset)
    if following is not None:
        self.increment_log_start_offset(following.base_offset, "segment deletion")
    self.read_hints.clear()
    for segment in deletable:
        self.segments.remove(segment)
    _discard_in_thread(self, deletable, deletable)


def _discard_in_thread(self: "PartitionLog", segments: Sequence[Segment], beside: Sequence[Segment]) -> None:
    """Takes the files of `segments`, and the producer snapshots that stand beside those of `beside`, out of sight; they go later."""
    names = _forget_snapshots(self, beside)
    _in_thread(self, Discard(self, segments, names), _say_nothing)


def _in_thread(self: "PartitionLog", discard: Discard, then: Then) -> None:
    self.discards.append(discard)
    self.context.submit(f"{DISCARD_SEGMENTS} {self.log_dir}", discard.run, lambda error: _on_discarded(self, discard, error, then))


def _on_discarded(self: "PartitionLog", discard: Discard, error: BaseException | None, then: Then) -> None:
    self.discards.remove(discard)
    discard.give_back(self.context.filesystem, self.directory)
    if error is None:
        delete_later(self, [*names_of(discard.segments), *(name + DELETED_SUFFIX for name in discard.snapshots)])
        then(None)
        return
    if not isinstance(error, OSError):
        raise error
    if self.is_closed:
        then(LogClosed(self.topic_partition))
        return
    failure = LogDirFailure(self.log_dir, str(error.filename or self.directory), error.strerror or str(error))
    self.context.on_failure(failure)
    then(failure)


def _forget_snapshots(self: "PartitionLog", beside: Sequence[Segment]) -> list[str]:
    paths = [self.producer_state.forget_snapshot(segment.base_offset) for segment in beside]
    return [path.rpartition("/")[2] for path in paths if path is not None]


def finish_discards(self: "PartitionLog") -> None:
    """All that left the log is out of sight on return. Blocks; may raise OSError."""
    for discard in tuple(self.discards):
        discard.run()


def discard_segments(self: "PartitionLog", segments: Sequence[Segment]) -> None:
    """Takes `segments` out of the log and their files out of sight; the files go later. May raise OSError."""
    if not segments:
        return
    self.read_hints.clear()
    for segment in segments:
        self.segments.remove(segment)
    discard_files(segments)
    delete_later(self, names_of(segments))


def discard_files(segments: Sequence[Segment]) -> None:
    """Takes the files of `segments` out of sight, in that order. May raise OSError."""
    for segment in segments:
        segment.change_suffix(DELETED_SUFFIX)


def rename_snapshots(filesystem: FileSystem, producers: ProducerStateManager, segments: Sequence[Segment]) -> list[str]:
    """Takes those that stand beside `segments` out of sight; returns what they are called now. May raise OSError."""
    names = []
    for segment in segments:
        path = producers.forget_snapshot(segment.base_offset)
        if path is not None and filesystem.exists(path):
            filesystem.rename(path, path + DELETED_SUFFIX)
            names.append(path.rpartition("/")[2] + DELETED_SUFFIX)
    return names


def delete_later(self: "PartitionLog", names: Sequence[str]) -> None:
    """Deletes those files of the log's directory after `file.delete.delay.ms`, in a thread, whatever the directory is called by then."""
    if not names:
        return
    small_files = self.small_files

    def delete_all() -> None:
        for name in names:
            try:
                small_files.remove(name)
            except OSError as error:
                # The name says .deleted: the next start tries again.
                log.warning("%s/%s is not deleted: %s", small_files.directory, name, error.strerror or error)

    self.context.scheduler.schedule_once("delete-file", delete_all, self.settings.file_delete_delay_ms)


def replace_segments(self: "PartitionLog", base_offset: int, old: Sequence[Segment], then: Then = _say_nothing) -> Swap:
    """Puts the cleaned segment whose files are `<base_offset>.*.cleaned`, all of them durable, in the place of `old`.

    For whoever reads that is so on return. A thread renames the files and makes that durable; then `then` is called, on the loop, with what
    went wrong if it did. Raises LogDirFailure, with everything as it was.
    """
    current = set(self.segments)
    replaced = [segment for segment in old if segment in current]
    try:
        self.finish_rolls()
        swap = Swap(self, base_offset, replaced, [])
    except OSError as error:
        raise self.disk_failure(self.directory, error) from error
    swap.snapshots = _forget_snapshots(self, [segment for segment in replaced if segment.base_offset != base_offset])
    for segment in replaced:
        self.segments.remove(segment)
    self.segments.add(swap.cleaned)
    self.read_hints.clear()
    _in_thread(self, swap, then)
    return swap


def delete(self: "PartitionLog") -> None:
    """Deletes the directory of a closed log and everything in it, now. Blocks; raises LogDirFailure."""
    self.small_files.forget()
    filesystem = self.context.filesystem
    try:
        for name in filesystem.list_directory(self.directory):
            with suppress(FileNotFoundError):  # who was to delete a segment of it may be at that just now
                filesystem.unlink(f"{self.directory}/{name}")
        filesystem.remove_directory(self.directory)
        filesystem.sync_directory(self.log_dir)
    except OSError as error:
        raise LogDirFailure(self.log_dir, self.directory, error.strerror or str(error)) from error
    log.info("%s: deleted %s", self.topic_partition, self.directory)


def names_of(segments: Iterable[Segment]) -> list[str]:
    """The names of their files in the log's directory."""
    return [path.rpartition("/")[2] for segment in segments for path in segment.paths]


def _bases(segments: Sequence[Segment]) -> str:
    return ", ".join(str(segment.base_offset) for segment in segments)
