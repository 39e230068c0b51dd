"""Takes the files of segments that left a log out of sight.

Files are renamed to `.deleted` and removed after `file.delete.delay.ms`, so that a read that is under way still finds them. Retention
decides which segments go and calls `PartitionLog.delete_old_segments`, the cleaner calls `PartitionLog.replace_segments`; both have a
thread do the renaming (`discards`, `swaps`).
"""

from collections.abc import Callable, Iterable, Sequence

from storage.disk.file_names import DELETED_SUFFIX
from storage.disk.filesystem import FileSystem
from storage.errors import StorageError
from storage.producers.state_manager import ProducerStateManager
from storage.segment.segment import Segment

OnReplaced = Callable[[StorageError | None], None]
NO_LIMIT = 2**31 - 1


def say_nothing(_: Exception | None) -> None:
    """For a caller that need not hear of the end."""


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


def names_of(segments: Iterable[Segment]) -> list[str]:
    """The names of their files in the log's directory."""
    return [path.rpartition("/")[2] for segment in segments for path in segment.paths]
