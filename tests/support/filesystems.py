"""Provides file systems for tests: one in memory, and one with injected failures."""

import errno
import os
import random
from collections.abc import Callable
from typing import Any

from ottla.storage.disk.filesystem import File, FileSystem

Data = bytes | bytearray | memoryview

SECTOR_BYTES = 512
"""Bytes that a disk writes atomically."""


class _Node:
    """The content of a file, which lives as long as the file is open."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.modified_ms = 0


class MemoryFile:
    """An open file of a `MemoryFileSystem`."""

    def __init__(self, path: str, node: _Node, *, read_only: bool) -> None:
        self.path = path
        self.node = node
        self._read_only = read_only
        self._position = 0

    def write(self, data: Data) -> None:
        self.pwrite(data, self._position)
        self._position += len(data)

    def pwrite(self, data: Data, at: int) -> None:
        self._check_writable()
        content = self.node.data
        if at > len(content):
            content.extend(bytes(at - len(content)))
        content[at : at + len(data)] = data

    def pread(self, length: int, at: int) -> bytes:
        return bytes(self.node.data[at : at + length])

    def pread_cached(self, length: int, at: int) -> bytes | None:
        return self.pread(length, at)

    def map(self, length: int) -> bytes:
        return bytes(self.node.data[:length])

    def truncate(self, size: int) -> None:
        self._check_writable()
        content = self.node.data
        del content[size:]
        content.extend(bytes(size - len(content)))
        self.node.durable = self.node.durable[:size]  # blocks that were given back do not return among new ones

    def size(self) -> int:
        return len(self.node.data)

    def reserve(self, at: int, length: int) -> bool:
        return False

    def give_back(self) -> None:
        """There is nothing."""

    def sync(self) -> None:
        self.node.durable = bytes(self.node.data)

    def is_cached(self, length: int, at: int) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a file in memory has no descriptor")

    def close(self) -> None:
        """Nothing to do."""

    def _check_writable(self) -> None:
        if self._read_only:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class MemoryFileSystem:
    """A `FileSystem` in memory, which can be asked what a power cut would leave of it."""

    def __init__(self) -> None:
        self.nodes: dict[str, _Node] = {}
        self.directories = {"/"}
        self.now_ms = 0
        self.has_unnamed_files = True
        self.has_few_files = False
        self._locked: set[str] = set()

    def after_power_cut(self, seed: int) -> "MemoryFileSystem":
        """A state that may be found after a power cut: every file as last synced, and those later writes that reached the disk.

        These are a first part of the later writes, or any of their sectors, in no order; other sectors are unchanged, or zeros. A file
        whose length alone changed since keeps any length between.
        """
        rng = random.Random(seed)
        found = MemoryFileSystem()
        found.directories = set(self.directories)
        for path, node in self.nodes.items():
            copy = found.nodes[path] = _Node()
            kept = rng.randint(min(len(node.durable), len(node.data)), len(node.data))
            copy.data = node.data[:kept]
            if rng.random() < 0.5:
                _lose_sectors(copy.data, node.durable, rng)
            copy.durable = bytes(copy.data)
            copy.modified_ms = node.modified_ms
        return found

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        node = self.nodes.get(path)
        if node is None:
            if not create:
                raise _missing(path)
            self._check_parent(path)
            node = self.nodes[path] = _Node()
            node.modified_ms = self.now_ms
        return MemoryFile(path, node, read_only=read_only)

    def open_unnamed(self, directory: str) -> MemoryFile | None:
        if not self.has_unnamed_files:
            return None
        if directory not in self.directories:
            raise _missing(directory)
        node = _Node()
        node.modified_ms = self.now_ms
        return MemoryFile(directory, node, read_only=False)

    def link(self, path: str, file: File) -> None:
        assert isinstance(file, MemoryFile)
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._check_parent(path)
        self.nodes[path] = file.node
        file.path = path

    def is_short_of_files(self) -> bool:
        return False

    def is_scarce(self, file: File) -> bool:
        return self.has_few_files

    def relieve_with(self, close_some: Callable[[], None] | None) -> None:
        """There is no such limit in memory."""

    def exists(self, path: str) -> bool:
        return path in self.nodes or path in self.directories

    def is_directory(self, path: str) -> bool:
        return path in self.directories

    def size(self, path: str) -> int:
        return len(self._node(path).data)

    def modified_ms(self, path: str) -> int:
        return self._node(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._node(path).modified_ms = modified_ms

    def read_file(self, path: str) -> bytes:
        return bytes(self._node(path).data)

    def list_directory(self, path: str) -> list[str]:
        if path not in self.directories:
            raise _missing(path)
        inside = path.rstrip("/") + "/"
        names = (each.removeprefix(inside) for each in (*self.nodes, *self.directories) if each.startswith(inside) and each != path)
        return sorted(name for name in names if name and "/" not in name)

    def make_directory(self, path: str) -> None:
        while path and path not in self.directories:
            if path in self.nodes:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self.directories.add(path)
            path = path.rpartition("/")[0]

    def rename(self, old: str, new: str) -> None:
        if old in self.directories:
            inside = old + "/"
            self.directories = {
                new + each.removeprefix(old) if each == old or each.startswith(inside) else each for each in self.directories
            }
            self.nodes = {new + path.removeprefix(old) if path.startswith(inside) else path: node for path, node in self.nodes.items()}
            return
        node = self._node(old)
        self._check_parent(new)
        del self.nodes[old]
        self.nodes[new] = node

    def unlink(self, path: str) -> None:
        self._node(path)
        del self.nodes[path]

    def remove_directory(self, path: str) -> None:
        if self.list_directory(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self.directories.remove(path)

    def sync_directory(self, path: str) -> None:
        if path not in self.directories:
            raise _missing(path)

    def sync_everything(self, path: str) -> bool:
        for node in self.nodes.values():
            node.durable = bytes(node.data)
        return True

    def total_and_free_bytes(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39

    def try_lock(self, path: str) -> File | None:
        if path in self._locked:
            return None
        file = self.open(path, create=True)
        self._locked.add(path)
        return file

    def release_locks(self) -> None:
        """Release the locks, as the system does when the process that held them dies."""
        self._locked.clear()

    def unlock(self, lock: File) -> None:
        self._locked.discard(lock.path)

    def _node(self, path: str) -> _Node:
        node = self.nodes.get(path)
        if node is None:
            raise _missing(path)
        return node

    def _check_parent(self, path: str) -> None:
        if path.rpartition("/")[0] not in self.directories:
            raise _missing(path)


def _lose_sectors(data: bytearray, durable: bytes, rng: random.Random) -> None:
    """Put back some of the sectors that were written since `durable`."""
    for start in range(0, len(data), SECTOR_BYTES):
        end = min(start + SECTOR_BYTES, len(data))
        before = durable[start:end].ljust(end - start, b"\0")
        if data[start:end] != before and rng.random() < 0.5:
            data[start:end] = before


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


_CHANGES_OF_FILES = frozenset(["open", "write", "pwrite", "truncate", "sync", "rename", "unlink", "set_modified_ms", "try_lock"])
_CHANGES = _CHANGES_OF_FILES | {"make_directory", "remove_directory", "sync_directory", "sync_everything", "open_unnamed", "link"}


class FaultyFileSystem:
    """Another file system whose calls fail from a chosen one on, or once, or when a condition holds.

    Only calls that change something count, and `open`; a write that fails leaves the first half of its data, as a full disk does.
    """

    def __init__(self, inner: FileSystem) -> None:
        self._inner = inner
        self.calls = 0
        self.fail_at: int | None = None
        """The number of the first call that fails; None lets all succeed."""
        self.fails_for_ever = True
        self.fails_if: Callable[[str, str], bool] | None = None
        """Asked with the method and the path, besides."""
        self.error_number = errno.EIO

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in _CHANGES:
            return method

        def call(path: str, *args: Any, **kwargs: Any) -> Any:
            if self.is_due(name, path):
                raise self.error(path)
            result = method(path, *args, **kwargs)
            return _FaultyFile(self, result) if name in ("open", "try_lock") and result is not None else result

        return call

    def is_short_of_files(self) -> bool:
        return self._inner.is_short_of_files()

    def is_scarce(self, file: File) -> bool:
        return self._inner.is_scarce(file)

    def relieve_with(self, close_some: Callable[[], None] | None) -> None:
        self._inner.relieve_with(close_some)

    def is_due(self, name: str, path: str) -> bool:
        """Whether this call is to fail."""
        if name not in _CHANGES:
            return False
        self.calls += 1
        if self.fails_if is not None and self.fails_if(name, path):
            return True
        if self.fail_at is None:
            return False
        return self.calls >= self.fail_at if self.fails_for_ever else self.calls == self.fail_at

    def error(self, path: str) -> OSError:
        """The exception of a failing call."""
        return OSError(self.error_number, os.strerror(self.error_number), path)


class _FaultyFile:
    def __init__(self, filesystem: FaultyFileSystem, inner: File) -> None:
        self._filesystem = filesystem
        self._inner = inner
        self.path = inner.path

    def write(self, data: Data) -> None:
        if self._filesystem.is_due("write", self.path):
            self._inner.write(memoryview(data)[: len(data) // 2])
            raise self._filesystem.error(self.path)
        self._inner.write(data)

    def pwrite(self, data: Data, at: int) -> None:
        if self._filesystem.is_due("pwrite", self.path):
            self._inner.pwrite(memoryview(data)[: len(data) // 2], at)
            raise self._filesystem.error(self.path)
        self._inner.pwrite(data, at)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in _CHANGES:
            return method

        def call(*args: Any) -> Any:
            if self._filesystem.is_due(name, self.path):
                raise self._filesystem.error(self.path)
            return method(*args)

        return call
