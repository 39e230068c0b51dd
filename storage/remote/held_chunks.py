"""Declares the ports through which chunks are fetched, verified and written where the store works, and implements them for this process.

A broker's own store works in another process (`broker/remote/store_process.py`), which holds the bytes of a chunk until the cache has
decided what becomes of them. `LocalChunks` is for stores in this process: those of commands, of simulations and of tests.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.remote.chunk_checks import Checked, ChunkCheck, write_chunk
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.ports import RemoteStore
from ottla.storage.remote.threads import Threads


class HeldChunk(Protocol):
    """The bytes of a chunk that was fetched. The owner calls `drop` at the end."""

    @property
    def size(self) -> int:
        """The number of bytes."""

    async def write(self, check: ChunkCheck, path: str) -> Checked:
        """Verifies the chunk by itself and the others in the file of its segment, and writes it there. The bytes are still held.

        Raises CorruptChunk, OSError if the disk refuses the chunk or the file is gone, and RemoteStoreError if the bytes are lost. In the
        last case it is not known what was written.
        """

    async def read(self) -> bytes | memoryview:
        """Returns the bytes. Raises RemoteStoreError if they are lost."""

    def drop(self) -> None:
        """Forgets the bytes. May be called again."""


class ChunkSource(Protocol):
    """Fetches the records of remote segments."""

    async def hold(self, entry: SegmentEntry, start: int, end: int) -> HeldChunk:
        """Fetches as `RemoteStore.fetch` does, and raises the same."""


class LocalChunk:
    """A chunk in this process."""

    def __init__(self, data: bytes | memoryview, filesystem: FileSystem, threads: Threads) -> None:
        self._data = data
        self._filesystem = filesystem
        self._threads = threads

    @property
    def size(self) -> int:
        """See HeldChunk."""
        return len(self._data)

    async def write(self, check: ChunkCheck, path: str) -> Checked:
        """See HeldChunk."""
        return await self._threads(partial(write_chunk, self._filesystem, path, self._data, check))

    async def read(self) -> bytes | memoryview:
        """See HeldChunk."""
        return self._data

    def drop(self) -> None:
        """See HeldChunk."""
        self._data = b""


class LocalChunks:
    """The chunks of a store in this process."""

    def __init__(self, store: RemoteStore, filesystem: FileSystem, threads: Threads) -> None:
        """`filesystem` has the files of the cache."""
        self._store = store
        self._filesystem = filesystem
        self._threads = threads

    async def hold(self, entry: SegmentEntry, start: int, end: int) -> LocalChunk:
        """See ChunkSource."""
        return LocalChunk(await self._store.fetch(entry, start, end), self._filesystem, self._threads)
