"""Taking the files of segments that left a log out of sight, in a thread: to rename a file may wait for the journal of the file system, and
a segment is four files and a snapshot.

`log_deletion` begins one. The segments are nobody's by then: whoever reads them has their files open. A crash before the renames leaves
segments that the log had given up; it begins with them again, and they go with the next look at its retention.

Invariant: while one is under way, no file is made in the log's directory that has the name of one of its: a roll begins behind all that
went, and who cuts the log or begins it anew calls `run` first, as does who closes it.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from storage.disk.file_names import DELETED_SUFFIX
from storage.disk.filesystem import FileSystem
from storage.disk.movable_directory import MovableDirectory
from storage.segment.segment import Segment

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog

DISCARD_SEGMENTS = "discard-segments"
"""The name of this work, before that of the log directory: each is a disk of its own."""


class Discard:
    """Of some segments of a log, and of the producer snapshots `snapshots`, by their names in its directory."""

    __slots__ = ("_directory", "_filesystem", "_has_run", "_lock", "error", "segments", "snapshots")

    def __init__(self, log: "PartitionLog", segments: Sequence[Segment], snapshots: Sequence[str]) -> None:
        self._directory = log.directory
        self._filesystem = MovableDirectory(log.context.filesystem, log.small_files)
        self._lock = threading.Lock()
        self._has_run = False
        self.segments = segments
        self.snapshots = snapshots
        self.error: OSError | None = None
        for segment in segments:
            segment.use_filesystem(self._filesystem)

    def run(self) -> None:
        """Blocks until it is done, whoever does it; for any thread. Raises OSError."""
        with self._lock:
            if not self._has_run:
                self._has_run = True
                try:
                    self._rename()
                except OSError as error:
                    self.error = error
        if self.error is not None:
            raise self.error

    def give_back(self, filesystem: FileSystem, directory: str) -> None:
        """It has run: everything is the loop's again, in the directory as it is called now."""
        for segment in self.segments:
            segment.use_filesystem(filesystem)
            segment.move_to(directory)

    def _rename(self) -> None:
        self._rename_segments()
        self._rename_snapshots()

    def _rename_segments(self) -> None:
        # The oldest first: a crash leaves no hole. What is missing went with its directory.
        for segment in self.segments:
            segment.change_suffix(DELETED_SUFFIX)

    def _rename_snapshots(self) -> None:
        for name in self.snapshots:
            path = f"{self._directory}/{name}"
            with suppress(FileNotFoundError):
                self._filesystem.rename(path, path + DELETED_SUFFIX)
