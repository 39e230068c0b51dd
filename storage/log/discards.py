"""Removes the files of segments that a log has lost: old ones, and those that the cleaner has replaced.

Retention decides about old segments (`retention`), the cleaner about replaced ones. The log loses them at once, and a thread renames their
files to `.deleted` (`Discard`, `Swap`). The files are removed after `file.delete.delay.ms`, so that a read in progress still finds them.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from ottla.storage.disk.file_names import DELETED_SUFFIX
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import LogClosed, LogDirFailure, StorageError
from ottla.storage.log.log_files import LogFiles
from ottla.storage.producers.state_manager import ProducerStateManager
from ottla.storage.segment.discard import DISCARD_SEGMENTS, Discard
from ottla.storage.segment.log_segments import LogSegments
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.swap import Swap

logger = logging.getLogger(__name__)

OnReplaced = Callable[[StorageError | None], None]


def ignore_result(_: Exception | None) -> None:
    """Callback of callers that ignore the result."""


class Discards:
    """The segments of one log whose files are being renamed. Called on the event loop."""

    __slots__ = ("_files", "_segments", "in_progress")

    def __init__(self, files: LogFiles, segments: LogSegments) -> None:
        self._files = files
        self._segments = segments
        self.in_progress: list[Discard] = []
        """Discards that a thread has not finished."""

    def discard(self, segments: Sequence[Segment], producers: ProducerStateManager) -> None:
        """Take `segments` out of the log, and the snapshots of producers beside them. A thread renames the files. May raise OSError."""
        for segment in segments:
            self._segments.remove(segment)
        snapshots = _forget_snapshots(producers, segments)
        self._run(Discard(self._files.context.filesystem, self._files.small_files, segments, snapshots), ignore_result)

    def discard_now(self, segments: Sequence[Segment]) -> None:
        """Take `segments` out of the log and rename their files, without a thread. May raise OSError."""
        for segment in segments:
            self._segments.remove(segment)
        discard_files(segments)
        self.delete_later(names_of(segments))

    def swap(self, base_offset: int, replaced: Sequence[Segment], producers: ProducerStateManager, then: OnReplaced) -> Swap:
        """Put the cleaned segment from `base_offset` on in place of the segments `replaced` of the log. A thread renames the files; then
        `then` is called on the loop. May raise OSError, with everything unchanged."""
        files, segments = self._files, self._segments
        now_ms = files.context.clock.now_ms()
        swap = Swap(files.context.filesystem, files.small_files, base_offset, replaced, segments.settings, now_ms=now_ms)
        swap.snapshots = _forget_snapshots(producers, [segment for segment in replaced if segment.base_offset != base_offset])
        for segment in replaced:
            segments.remove(segment)
        segments.add(swap.cleaned)
        self._run(swap, then)
        return swap

    def finish(self) -> None:
        """Complete all discards. Blocks; may raise OSError."""
        for discard in tuple(self.in_progress):
            discard.run()

    def delete_later(self, names: Sequence[str]) -> None:
        """Remove files of the log's directory after `file.delete.delay.ms`, in a thread, even if the directory is renamed meanwhile."""
        if not names:
            return
        small_files = self._files.small_files

        def delete_all() -> None:
            for name in names:
                try:
                    small_files.remove(name)
                except OSError as error:
                    # The name ends with .deleted, so the next start tries again.
                    logger.warning(
                        "%s/%s cannot be deleted: %s; the next start tries again", small_files.directory, name, error.strerror or error
                    )

        self._files.context.scheduler.schedule_once("delete-file", delete_all, self._segments.settings.file_delete_delay_ms)

    def _run(self, discard: Discard, then: OnReplaced) -> None:
        self.in_progress.append(discard)
        name = f"{DISCARD_SEGMENTS} {self._files.log_dir}"
        self._files.context.submit(name, discard.run, lambda error: self._on_discarded(discard, error, then))

    def _on_discarded(self, discard: Discard, error: BaseException | None, then: OnReplaced) -> None:
        files = self._files
        self.in_progress.remove(discard)
        discard.give_back(files.context.filesystem, files.directory)
        if error is None:
            self.delete_later([*names_of(discard.segments), *(name + DELETED_SUFFIX for name in discard.snapshots)])
            then(None)
            return
        if files.is_closed:
            then(LogClosed(files.topic_partition))
            return
        if isinstance(error, OSError):
            failure = files.failure(error)
        else:  # some of the files may have their old names
            logger.error("%s: the files of removed segments cannot be renamed", files.topic_partition, exc_info=error)
            failure = LogDirFailure(files.log_dir, files.directory, str(error))
        files.context.on_failure(failure)
        then(failure)


def _forget_snapshots(producers: ProducerStateManager, beside: Sequence[Segment]) -> list[str]:
    """Forget the producer snapshots that belong to the segments `beside`. Returns the names of their files."""
    paths = [producers.forget_snapshot(segment.base_offset) for segment in beside]
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
