"""Slows down the calls of a file system at random, so that races between threads and the event loop show."""

from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

from ottla.storage.disk.filesystem import File, FileSystem

Data = bytes | bytearray | memoryview

PAUSES_SECONDS = (0.0005, 0.002, 0.005, 0.03)
"""The longest pause of a call: one of these by chance, so that most are short and some are long."""
_MEMORY_ONLY = frozenset(
    ["fileno", "is_cached", "pread_cached", "close", "is_scarce", "is_short_of_files", "relieve_with", "release_locks"]
)
"""Calls that do not wait for a disk."""


class Delays:
    """When a call waits, and for how long: by a seed, and never in the main thread, whose loop a test does not want to slow down.

    The threads draw from one row of random numbers, so that a seed gives the same row but not the same part of it to each.
    """

    def __init__(self, seed: int, chance: float = 0.3, sleep: Callable[[float], None] = time.sleep) -> None:
        self._random = Random(seed)
        self._chance = chance
        self._sleep = sleep

    def around(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The result or exception of `call`, with a pause before it, after it, both, or none."""
        if threading.current_thread() is threading.main_thread():
            return call(*arguments, **named)
        self._pause()
        try:
            return call(*arguments, **named)
        finally:
            self._pause()

    def _pause(self) -> None:
        if self._random.random() < self._chance:
            self._sleep(self._random.random() * self._random.choice(PAUSES_SECONDS))


class SlowFileSystem:
    """Another file system, with these delays."""

    def __init__(self, inner: FileSystem, delays: Delays) -> None:
        self._inner = inner
        self._delays = delays

    def link(self, path: str, file: File) -> None:
        self._delays.around(self._inner.link, path, _inner_of(file))

    def unlock(self, lock: File) -> None:
        self._inner.unlock(_inner_of(lock))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name in _MEMORY_ONLY or not callable(method):
            return method

        def call(*arguments: Any, **named: Any) -> Any:
            found = self._delays.around(method, *arguments, **named)
            return _SlowFile(found, self._delays) if name in ("open", "open_unnamed", "try_lock") and found is not None else found

        return call


class _SlowFile:
    """A file of a `SlowFileSystem`. Its name is that of the file behind it."""

    def __init__(self, inner: File, delays: Delays) -> None:
        self.inner = inner
        self._delays = delays

    @property
    def path(self) -> str:
        return self.inner.path

    @path.setter
    def path(self, path: str) -> None:
        self.inner.path = path

    def write(self, data: Data) -> None:
        self._delays.around(self.inner.write, data)

    def pwrite(self, data: Data, at: int) -> None:
        self._delays.around(self.inner.pwrite, data, at)

    def pread(self, length: int, at: int) -> bytes:
        found = self._delays.around(self.inner.pread, length, at)
        assert isinstance(found, bytes)
        return found

    def map(self, length: int) -> mmap.mmap | bytes:
        found = self._delays.around(self.inner.map, length)
        assert isinstance(found, mmap.mmap | bytes)
        return found

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name in _MEMORY_ONLY:
            return method
        return lambda *arguments: self._delays.around(method, *arguments)


def _inner_of(file: File) -> File:
    return file.inner if isinstance(file, _SlowFile) else file
