"""Implements a `FileSystem` that translates the paths of its calls.

The common base of `MovableDirectory` and `CleanedFiles`.
"""

from collections.abc import Callable
from typing import TypeVar

from ottla.storage.disk.filesystem import File, FileSystem

T = TypeVar("T")


class TranslatedPaths:
    """Every path is translated by `_at`, for each call."""

    __slots__ = ("_filesystem",)

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem

    def _at(self, path: str, call: Callable[[str], T]) -> T:
        """Calls `call` with the translated path and returns its result."""
        raise NotImplementedError

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        return self._at(path, lambda now: self._filesystem.open(now, create=create, read_only=read_only))

    def open_unnamed(self, directory: str) -> File | None:
        return self._at(directory, self._filesystem.open_unnamed)

    def link(self, path: str, file: File) -> None:
        self._at(path, lambda now: self._filesystem.link(now, file))

    def is_short_of_files(self) -> bool:
        return self._filesystem.is_short_of_files()

    def relieve_with(self, close_some: Callable[[], None] | None) -> None:
        self._filesystem.relieve_with(close_some)

    def is_scarce(self, file: File) -> bool:
        return self._filesystem.is_scarce(file)

    def exists(self, path: str) -> bool:
        return self._at(path, self._filesystem.exists)

    def is_directory(self, path: str) -> bool:
        return self._at(path, self._filesystem.is_directory)

    def size(self, path: str) -> int:
        return self._at(path, self._filesystem.size)

    def modified_ms(self, path: str) -> int:
        return self._at(path, self._filesystem.modified_ms)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._at(path, lambda now: self._filesystem.set_modified_ms(now, modified_ms))

    def read_file(self, path: str) -> bytes:
        return self._at(path, self._filesystem.read_file)

    def list_directory(self, path: str) -> list[str]:
        return self._at(path, self._filesystem.list_directory)

    def make_directory(self, path: str) -> None:
        self._at(path, self._filesystem.make_directory)

    def rename(self, old: str, new: str) -> None:
        """Renames within a directory."""
        name, new_name = old.rpartition("/")[2], new.rpartition("/")[2]
        self._at(old, lambda now: self._filesystem.rename(now, now[: len(now) - len(name)] + new_name))

    def unlink(self, path: str) -> None:
        self._at(path, self._filesystem.unlink)

    def remove_directory(self, path: str) -> None:
        self._at(path, self._filesystem.remove_directory)

    def sync_directory(self, path: str) -> None:
        self._at(path, self._filesystem.sync_directory)

    def sync_everything(self, path: str) -> bool:
        return self._at(path, self._filesystem.sync_everything)

    def total_and_free_bytes(self, path: str) -> tuple[int, int]:
        return self._at(path, self._filesystem.total_and_free_bytes)

    def try_lock(self, path: str) -> File | None:
        return self._at(path, self._filesystem.try_lock)

    def unlock(self, lock: File) -> None:
        self._filesystem.unlock(lock)
