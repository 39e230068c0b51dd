"""Gives a thread access to a partition's directory while that may be renamed.

A truncation in a thread takes some time. Meanwhile the partition may be deleted, which renames its directory, and be created again with a
directory of the old name. So the thread uses a `MovableDirectory`, which resolves a path below the original directory to the current one.
No path is found when the directory is about to be removed.

Invariants: a call acts on the directory of this log, whatever its current name. The lock of its `SmallFiles` is held
during a call. No call waits for the disk longer than the loop itself would.
"""

from collections.abc import Callable
from typing import TypeVar

from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.small_files import SmallFiles
from ottla.storage.disk.translated_paths import TranslatedPaths

T = TypeVar("T")


class MovableDirectory(TranslatedPaths):
    """A `FileSystem`; paths elsewhere are passed on unchanged."""

    __slots__ = ("_small_files", "home")

    def __init__(self, filesystem: FileSystem, small_files: SmallFiles) -> None:
        super().__init__(filesystem)
        self._small_files = small_files
        self.home = small_files.directory
        """The name of the directory to callers."""

    def _at(self, path: str, call: Callable[[str], T]) -> T:
        with self._small_files.where_it_is() as directory:
            return call(self._in(directory, path))

    def _in(self, directory: str, path: str) -> str:
        home = self.home
        return directory + path[len(home) :] if path == home or path.startswith(home + "/") else path

    def sync_directory(self, path: str) -> None:
        # Without the lock, because it may wait for the disk for long.
        if path != self.home:
            self._filesystem.sync_directory(path)
            return
        with self._small_files.where_it_is():
            pass
        self._small_files.sync_directory()
