"""Keeps segments in a directory that all brokers share, in the layout of Apache Kafka's LocalTieredStorage.

Each part of a segment is a file. A copy is durable when `copy` returns: local segments are removed because of it.

A call may hang for minutes, and end when a later attempt has made the same copy. So an attempt never empties a file: it writes the same
bytes to the same places, and cuts what is behind them at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.local_layout import LOG_SUFFIX, ROOT, SUFFIX_OF, partition_directory, segment_name
from ottla.storage.remote.ports import (
    MAX_INDEX_BYTES,
    OWNER_NAME,
    IndexKind,
    RemoteObjectMissing,
    RemoteStoreAbsent,
    RemoteStoreDenied,
    RemoteStoreError,
    SegmentFiles,
    StoredObject,
)
from ottla.storage.remote.threads import Threads

PIECE_BYTES: Final = 8 << 20
"""Bytes that a thread copies before other work has its turn."""
_COPY_BYTES: Final = 1 << 20
CALL_SECONDS: Final = 60.0
"""Time after which a call to the directory has failed: it may be that of another machine, which is gone."""

_Result = TypeVar("_Result")


class DirectoryStore:
    """A RemoteStore on the folder `directory`, which exists. The files to copy are read through the same FileSystem."""

    chunk_bytes: Final = 4 << 20
    copy_bytes: Final = _COPY_BYTES
    save_bytes: Final = _COPY_BYTES

    def __init__(self, filesystem: FileSystem, directory: str, threads: Threads) -> None:
        self._filesystem = filesystem
        self._base = directory
        self._root = f"{directory}/{ROOT}"
        self._threads = threads

    async def copy(self, entry: SegmentEntry, files: SegmentFiles) -> bytes | None:
        """Copies the records last. See RemoteStore."""
        is_over = threading.Event()
        try:
            await self._copy(entry, files, is_over)
        finally:
            is_over.set()
        return None

    async def fetch(self, entry: SegmentEntry, start: int, end: int) -> bytes:
        """See RemoteStore."""
        path = self._path(entry, LOG_SUFFIX)
        data = await self._run(path, partial(self._read, path, start, end))
        if len(data) != end - start:
            raise RemoteObjectMissing(f"{path} has {len(data)} bytes from {start} on, and {end - start} were expected")
        return data

    async def index(self, entry: SegmentEntry, kind: IndexKind, most: int = MAX_INDEX_BYTES) -> bytes:
        """See RemoteStore."""
        path = self._path(entry, SUFFIX_OF[kind])
        size = await self._size_of_index(entry, kind) or 0
        _check_size(path, size, most)
        return await self._run(path, partial(self._read, path, 0, size)) if size else b""

    async def index_size(self, entry: SegmentEntry, kind: IndexKind) -> int:
        """See RemoteStore."""
        size = await self._size_of_index(entry, kind) or 0
        _check_size(self._path(entry, SUFFIX_OF[kind]), size, MAX_INDEX_BYTES)
        return size

    async def save_indexes(self, entry: SegmentEntry, paths: Mapping[IndexKind, str]) -> None:
        """See RemoteStore."""
        is_over = threading.Event()
        try:
            for kind, path in paths.items():
                source = self._path(entry, SUFFIX_OF[kind])
                at: int | None = 0 if await self._size_of_index(entry, kind) is not None else None
                if at is None:
                    await self._in_time(source, partial(self._write, path, b""))
                while at is not None:
                    at = await self._in_time(source, partial(self._save_piece, source, path, at, is_over))
        finally:
            is_over.set()

    async def _size_of_index(self, entry: SegmentEntry, kind: IndexKind) -> int | None:
        """None for a copy without aborted transactions."""
        path = self._path(entry, SUFFIX_OF[kind])
        try:
            return await self._run(path, partial(self._filesystem.size, path))
        except RemoteObjectMissing:
            if kind is not IndexKind.TRANSACTION:
                raise
            await self.size(entry)  # a whole copy may have no such file, so the error names the one that it must have
            return None

    async def manifest(self, entry: SegmentEntry) -> bytes | None:
        """Returns None: the layout has no manifests."""
        return None

    async def size(self, entry: SegmentEntry) -> int:
        """See RemoteStore."""
        path = self._path(entry, LOG_SUFFIX)
        return await self._run(path, partial(self._filesystem.size, path))

    async def delete(self, entry: SegmentEntry) -> None:
        """See RemoteStore."""
        await self.probe()
        await self._run(self._directory_of(entry), partial(self._delete, entry))

    async def probe(self) -> None:
        """See RemoteStore."""
        await self._run(self._root, partial(self._filesystem.list_directory, self._base))
        if not await self._run(self._root, partial(self._filesystem.is_directory, self._root)):
            raise RemoteStoreAbsent(f"{self._root} is no directory")

    async def now_ms(self) -> int | None:
        """Returns None: the times of files do not tell whose clock they are from."""
        return None

    def prepare(self) -> None:
        """Makes the folder of the store in `directory`, which exists. Blocks; called once, at the start. Raises RemoteStoreError."""
        try:
            self._filesystem.list_directory(self._base)
            self._filesystem.make_directory(self._root)
        except OSError as error:
            raise _translated(self._base, error) from error

    async def owner(self, claim: str | None = None) -> str | None:
        """See RemoteStore."""
        path = f"{self._root}/{OWNER_NAME}"
        return await self._run(path, partial(self._owner, path, claim))

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        """Shows the files `<partition's folder>/<file>` that begin with the prefix."""
        folders: Sequence[str] = await self._run(self._root, partial(self._filesystem.list_directory, self._root))
        for folder in folders:
            if folder.startswith(prefix) or prefix.startswith(f"{folder}/"):
                directory = f"{self._root}/{folder}"
                for name, modified_ms in await self._run(directory, partial(self._files_in, directory)):
                    if f"{folder}/{name}".startswith(prefix):
                        yield StoredObject(f"{folder}/{name}", modified_ms)

    async def close(self) -> None:
        """Does nothing: calls in progress end in their threads."""

    async def _copy(self, entry: SegmentEntry, files: SegmentFiles, is_over: threading.Event) -> None:
        name = f"{self._directory_of(entry)}/{segment_name(entry)}"
        await self._run(name, partial(self._make_directories, entry))
        for kind, data in ((IndexKind.PRODUCER_SNAPSHOT, files.producer_snapshot), (IndexKind.LEADER_EPOCH, files.leader_epochs)):
            await self._run(name, partial(self._write, name + SUFFIX_OF[kind], data))
        sources = [(files.offset_index, SUFFIX_OF[IndexKind.OFFSET]), (files.time_index, SUFFIX_OF[IndexKind.TIMESTAMP])]
        if files.transaction_index is not None:
            sources.append((files.transaction_index, SUFFIX_OF[IndexKind.TRANSACTION]))
        for source, suffix in (*sources, (files.log, LOG_SUFFIX)):
            at: int | None = 0
            while at is not None:
                at = await self._run(name, partial(self._copy_piece, source, name + suffix, at, is_over))
        copied = await self.size(entry)
        if copied != entry.size:
            raise RemoteStoreError(f"{files.log} has {copied} bytes, and the segment to copy {entry.size}")
        await self._run(name, partial(self._filesystem.sync_directory, self._directory_of(entry)))

    async def _run(self, path: str, work: Callable[[], _Result]) -> _Result:
        """Does blocking work, in time. Raises RemoteStoreError and its kinds."""
        try:
            return await self._in_time(path, work)
        except OSError as error:
            raise _translated(path, error) from error

    async def _in_time(self, path: str, work: Callable[[], _Result]) -> _Result:
        """Does blocking work, in time. Raises RemoteStoreError, and what the work raises."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await self._threads(work)
        except TimeoutError:
            raise RemoteStoreError(f"{path}: no answer within {CALL_SECONDS:.0f} s") from None

    def _directory_of(self, entry: SegmentEntry) -> str:
        return f"{self._root}/{partition_directory(entry.id.partition)}"

    def _path(self, entry: SegmentEntry, suffix: str) -> str:
        return f"{self._directory_of(entry)}/{segment_name(entry)}{suffix}"

    # -- in threads ------------------------------------------------------------------------------------------------------

    def _make_directories(self, entry: SegmentEntry) -> None:
        directory = self._directory_of(entry)
        if self._filesystem.is_directory(directory):
            return
        if not self._filesystem.is_directory(self._root):
            raise FileNotFoundError(2, "no directory", self._root)  # otherwise the files would go below an empty mount point
        self._filesystem.make_directory(directory)
        self._filesystem.sync_directory(self._root)

    def _write(self, path: str, data: bytes) -> None:
        file = self._filesystem.open(path, create=True)
        try:
            file.pwrite(data, 0)
            file.truncate(len(data))
            file.sync()
        finally:
            file.close()

    def _copy_piece(self, source: str, path: str, at: int, is_over: threading.Event) -> int | None:
        """Copies from position `at` on. Returns where the next piece begins; None if this was the last, and the file is durable.

        Copies no more once the attempt `is_over`: the segment may have been truncated since.
        """
        to_copy = self._filesystem.open(source, read_only=True)
        try:
            file = self._filesystem.open(path, create=True)
            try:
                end = at + PIECE_BYTES
                while at < end:
                    data = to_copy.pread(min(_COPY_BYTES, end - at), at)
                    if is_over.is_set():
                        raise TimeoutError(f"{path}: this attempt to copy is over")
                    if not data:
                        file.truncate(at)
                        file.sync()
                        return None
                    file.pwrite(data, at)
                    at += len(data)
                return at
            finally:
                file.close()
        finally:
            to_copy.close()

    def _save_piece(self, source: str, path: str, at: int, is_over: threading.Event) -> int | None:
        """Saves from position `at` of an index on. Returns where the next piece begins; None if this was the last."""
        try:
            data = self._read(source, at, at + _COPY_BYTES)
        except OSError as error:
            raise _translated(source, error) from error
        _check_size(source, at + len(data), MAX_INDEX_BYTES)
        if is_over.is_set():
            return None
        file = self._filesystem.open(path, create=not at)
        try:
            file.pwrite(data, at)
        finally:
            file.close()
        return at + len(data) if len(data) == _COPY_BYTES else None

    def _read(self, path: str, start: int, end: int) -> bytes:
        file = self._filesystem.open(path, read_only=True)
        try:
            return file.pread(end - start, start)
        finally:
            file.close()

    def _delete(self, entry: SegmentEntry) -> None:
        for suffix in (LOG_SUFFIX, *SUFFIX_OF.values()):
            with contextlib.suppress(FileNotFoundError):
                self._filesystem.unlink(self._path(entry, suffix))
        directory = self._directory_of(entry)
        if self._filesystem.is_directory(directory):
            self._filesystem.sync_directory(directory)

    def _files_in(self, directory: str) -> Sequence[tuple[str, int]]:
        """The files with the times of their last changes, but those that are removed meanwhile."""
        found = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name in self._filesystem.list_directory(directory):
                with contextlib.suppress(FileNotFoundError):
                    found.append((name, self._filesystem.modified_ms(f"{directory}/{name}")))
        return found

    def _owner(self, path: str, claim: str | None) -> str | None:
        """The owner that the file names. A file that was cut off, which is empty, is written again."""
        with contextlib.suppress(FileNotFoundError):
            if known := self._filesystem.read_file(path).decode(errors="replace").strip():
                return known
        if claim is not None:
            self._write(path, f"{claim}\n".encode())
            self._filesystem.sync_directory(self._root)
        return claim


def _check_size(path: str, size: int, most: int) -> None:
    if size > most:
        raise RemoteStoreError(f"{path} has more than the {most} bytes that are read")


def _translated(path: str, error: OSError) -> RemoteStoreError:
    reason = f"{error.filename or path}: {error.strerror or error}"
    if isinstance(error, FileNotFoundError):
        return RemoteObjectMissing(reason)
    if isinstance(error, PermissionError):
        return RemoteStoreDenied(reason)
    if isinstance(error, NotADirectoryError):
        return RemoteStoreAbsent(reason)
    return RemoteStoreError(reason)
