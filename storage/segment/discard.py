"""Renames the files of removed segments to `.deleted`, in a thread.

A rename may wait for the journal of the file system, and a segment has four files and a producer snapshot. `Discards`
creates a `Discard`. By then the segments are no longer in the log, and readers have their files open. If the broker crashes before the
renames, the next start finds the segments in the log again, and the next check of its retention removes them.

Invariant: while a discard is in progress, no file with the name of a discarded one is created in the log's directory. A roll begins after
the discarded offsets. Truncating, restarting and closing the log call `run` first.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress

from ottla.storage.disk.file_names import DELETED_SUFFIX
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.movable_directory import MovableDirectory
from ottla.storage.disk.small_files import SmallFiles
from ottla.storage.segment.segment import Segment

DISCARD_SEGMENTS = "discard-segments"
"""Name of this work, followed by the log directory: each directory may be a disk of its own."""


class Discard:
    """Discards some segments of a log, and the producer snapshots `snapshots`, given by file name."""

    __slots__ = ("_directory", "_filesystem", "_has_run", "_lock", "error", "segments", "snapshots")

    def __init__(self, filesystem: FileSystem, small_files: SmallFiles, segments: Sequence[Segment], snapshots: Sequence[str]) -> None:
        self._filesystem = MovableDirectory(filesystem, small_files)
        self._directory = self._filesystem.home
        self._lock = threading.Lock()
        self._has_run = False
        self.segments = segments
        self.snapshots = snapshots
        self.error: Exception | None = None
        for segment in segments:
            segment.use_filesystem(self._filesystem)

    def run(self) -> None:
        """Does the work, or waits until another thread has done it; for any thread. Raises its error, mostly OSError."""
        with self._lock:
            if not self._has_run:
                self._has_run = True
                try:
                    self._rename()
                except Exception as error:
                    self.error = error
        if self.error is not None:
            raise self.error

    def give_back(self, filesystem: FileSystem, directory: str) -> None:
        """Return the segments to the event loop after `run`. `directory` is the current name of their directory."""
        for segment in self.segments:
            segment.use_filesystem(filesystem)
            segment.move_to(directory)

    def _rename(self) -> None:
        self._rename_segments()
        self._rename_snapshots()

    def _rename_segments(self) -> None:
        # The oldest first, so that a crash leaves no gap. Missing files were removed with their directory.
        for segment in self.segments:
            segment.change_suffix(DELETED_SUFFIX)

    def _rename_snapshots(self) -> None:
        for name in self.snapshots:
            path = f"{self._directory}/{name}"
            with suppress(FileNotFoundError):
                self._filesystem.rename(path, path + DELETED_SUFFIX)
