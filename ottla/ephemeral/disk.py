"""Simulates a full or slow disk of an ephemeral broker, for its tests."""

from __future__ import annotations

import errno
import mmap
import os
import time
from typing import Any

from ottla.storage.disk.filesystem import File, FileSystem

Data = bytes | bytearray | memoryview


class DiskFaults:
    """The active faults."""

    def __init__(self) -> None:
        self.is_full = False
        self.pause_seconds = 0.0
        """Time that each write and flush takes longer."""

    def heal(self) -> None:
        """End all faults."""
        self.is_full = False
        self.pause_seconds = 0.0

    def before_write(self, path: str) -> None:
        """Wait, or raise the OSError of a full disk."""
        if self.pause_seconds:
            time.sleep(self.pause_seconds)
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


class FaultyFileSystem:
    """Another file system, with these faults. All other calls pass through."""

    def __init__(self, inner: FileSystem, faults: DiskFaults) -> None:
        self._inner = inner
        self._faults = faults

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """See FileSystem."""
        return FaultyFile(self._inner.open(path, create=create, read_only=read_only), self._faults)

    def open_unnamed(self, directory: str) -> File | None:
        """See FileSystem."""
        found = self._inner.open_unnamed(directory)
        return None if found is None else FaultyFile(found, self._faults)

    def link(self, path: str, file: File) -> None:
        """See FileSystem."""
        self._faults.before_write(path)
        self._inner.link(path, inner_of(file))

    def unlock(self, lock: File) -> None:
        """See FileSystem."""
        self._inner.unlock(inner_of(lock))

    def sync_directory(self, path: str) -> None:
        """Does nothing: data of a test need not survive a loss of power, and every fsync delays a start."""

    def sync_everything(self, path: str) -> bool:
        """Does nothing."""
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class FaultyFile:
    """A file of a FaultyFileSystem."""

    def __init__(self, inner: File, faults: DiskFaults) -> None:
        self.inner = inner
        self._faults = faults

    @property
    def path(self) -> str:
        """See File."""
        return self.inner.path

    @path.setter
    def path(self, path: str) -> None:
        self.inner.path = path

    def write(self, data: Data) -> None:
        """See File."""
        self._faults.before_write(self.path)
        self.inner.write(data)

    def pwrite(self, data: Data, at: int) -> None:
        """See File."""
        self._faults.before_write(self.path)
        self.inner.pwrite(data, at)

    def sync(self) -> None:
        """Fails and waits as a flush does, but flushes nothing."""
        self._faults.before_write(self.path)

    def pread(self, length: int, at: int) -> bytes:
        """See File."""
        return self.inner.pread(length, at)

    def map(self, length: int) -> mmap.mmap | bytes:
        """See File."""
        return self.inner.map(length)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def inner_of(file: File) -> File:
    """The file behind a faulty one."""
    return file.inner if isinstance(file, FaultyFile) else file
