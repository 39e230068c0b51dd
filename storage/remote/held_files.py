"""Holds the indexes of a remote segment in memory, where the disk refuses them: a FileSystem as far as reading them needs one."""

from __future__ import annotations


class HeldFile:
    """A file that is only read."""

    __slots__ = ("_data", "path")

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self._data = data

    def pread(self, length: int, at: int) -> bytes:
        """See File."""
        return self._data[at : at + length]

    def pread_cached(self, length: int, at: int) -> bytes:
        """See File."""
        return self.pread(length, at)

    def map(self, length: int) -> bytes:
        """See File."""
        return self._data[:length]

    def is_cached(self, length: int, at: int) -> bool:
        """See File."""
        return True

    def close(self) -> None:
        """See File."""


class HeldFiles:
    """Files by their paths."""

    __slots__ = ("_files",)

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> HeldFile:
        """See FileSystem."""
        return HeldFile(path, self._files[path])

    def read_file(self, path: str) -> bytes:
        """See FileSystem."""
        return self._files[path]

    def size(self, path: str) -> int:
        """See FileSystem."""
        return len(self._files[path])

    def put(self, path: str, data: bytes) -> None:
        """Replaces a file."""
        self._files[path] = data
