"""Renames the files of removed segments to `.deleted`, and removes them later.

They are removed after `file.delete.delay.ms`, so that a read in progress still finds them. Retention decides about segments and calls
`PartitionLog.delete_old_segments`; the cleaner calls `PartitionLog.replace_segments`. In both cases a thread renames (`discards`, `swaps`).
"""

from collections.abc import Callable, Iterable, Sequence

from storage.disk.file_names import DELETED_SUFFIX
from storage.disk.filesystem import FileSystem
from storage.errors import StorageError
from storage.producers.state_manager import ProducerStateManager
from storage.segment.segment import Segment

OnReplaced = Callable[[StorageError | None], None]
NO_LIMIT = 2**31 - 1


def ignore_result(_: Exception | None) -> None:
    """Callback of callers that ignore the result."""


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
