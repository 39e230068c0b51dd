"""A partition's directory as a thread sees it that works in there while it may be renamed.

A truncation in a thread takes its time. Meanwhile the partition may be deleted, which renames its directory, and be created again, with
a directory of the old name. So the thread goes through a `MovableDirectory`: a path below the directory as it was called at first is looked
for where the directory is now, and nothing is found any more once the directory is about to be removed.

Invariant: what a call does, it does in the directory of the one log, whatever that is called; the lock of its `SmallFiles` is held for as
long as one call takes, none of which waits for the disk longer than the loop itself would.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from storage.filesystem import File, FileSystem
from storage.small_files import SmallFiles


class MovableDirectory:
    """A `FileSystem`; paths elsewhere mean what they mean to the one behind it."""

    __slots__ = ("_filesystem", "_home", "_small_files")

    def __init__(self, filesystem: FileSystem, small_files: SmallFiles) -> None:
        self._filesystem = filesystem
        self._small_files = small_files
        self._home = small_files.directory

    @contextmanager
    def _now(self, path: str) -> Iterator[str]:
        with self._small_files.where_it_is() as directory:
            home = self._home
            yield directory + path[len(home) :] if path == home or path.startswith(home + "/") else path

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        with self._now(path) as now:
            return self._filesystem.open(now, create=create, read_only=read_only)

    def open_unnamed(self, directory: str) -> File | None:
        with self._now(directory) as now:
            return self._filesystem.open_unnamed(now)

    def link(self, path: str, file: File) -> None:
        with self._now(path) as now:
            self._filesystem.link(now, file)

    def is_short_of_files(self) -> bool:
        return self._filesystem.is_short_of_files()

    def relieve_with(self, close_some: Callable[[], None]) -> None:
        self._filesystem.relieve_with(close_some)

    def exists(self, path: str) -> bool:
        with self._now(path) as now:
            return self._filesystem.exists(now)

    def is_directory(self, path: str) -> bool:
        with self._now(path) as now:
            return self._filesystem.is_directory(now)

    def size(self, path: str) -> int:
        with self._now(path) as now:
            return self._filesystem.size(now)

    def modified_ms(self, path: str) -> int:
        with self._now(path) as now:
            return self._filesystem.modified_ms(now)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with self._now(path) as now:
            self._filesystem.set_modified_ms(now, modified_ms)

    def read_file(self, path: str) -> bytes:
        with self._now(path) as now:
            return self._filesystem.read_file(now)

    def list_directory(self, path: str) -> list[str]:
        with self._now(path) as now:
            return self._filesystem.list_directory(now)

    def make_directory(self, path: str) -> None:
        with self._now(path) as now:
            self._filesystem.make_directory(now)

    def rename(self, old: str, new: str) -> None:
        with self._now(old) as source:
            # The lock is held: both are in the same place.
            target = source[: len(source) - len(old.rpartition("/")[2])] + new.rpartition("/")[2]
            self._filesystem.rename(source, target)

    def unlink(self, path: str) -> None:
        with self._now(path) as now:
            self._filesystem.unlink(now)

    def remove_directory(self, path: str) -> None:
        with self._now(path) as now:
            self._filesystem.remove_directory(now)

    def sync_directory(self, path: str) -> None:
        with self._now(path) as now:
            where = now
        self._filesystem.sync_directory(where)

    def sync_everything(self, path: str) -> bool:
        with self._now(path) as now:
            where = now
        return self._filesystem.sync_everything(where)

    def total_and_free_bytes(self, path: str) -> tuple[int, int]:
        with self._now(path) as now:
            return self._filesystem.total_and_free_bytes(now)

    def try_lock(self, path: str) -> File | None:
        with self._now(path) as now:
            return self._filesystem.try_lock(now)

    def unlock(self, lock: File) -> None:
        self._filesystem.unlock(lock)
