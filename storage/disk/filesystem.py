"""Declares the port to the disk, and implements it for the real disk.

The storage floor accesses files only through a `FileSystem`, so that tests can replace it by one in memory, or by one
that fails at the n-th call. Errors are the operating system's (`OSError`); the log turns them into `LogDirFailure`.

All calls on the real disk that take a descriptor go through `RealFileSystem._with_descriptor`. If none is free, it closes
files of logs, gives up one of a reserve, and repeats the call once.

Invariants: a `File` writes everything or raises; it closes its descriptor with its last reference, so that a region of
a deleted file remains readable.
"""

import errno
import fcntl
import mmap
import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from ottla.storage.disk.real_file import RealFile
from ottla.storage.errors import SHORTAGES

T = TypeVar("T")

DIRECTORY_MODE: Final = 0o750
FILE_MODE: Final = 0o640
"""The modes of new directories and files, before the umask: records are for the broker's user and its group. Existing ones keep theirs."""

_READ_BYTES = 1 << 20
_OPEN_READ = os.O_RDONLY | os.O_CLOEXEC
_OPEN_WRITE = os.O_RDWR | os.O_CLOEXEC


def make_directory(path: str) -> None:
    """Create a directory and its parents with DIRECTORY_MODE; does nothing when it exists. Raises OSError."""
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        parent = os.path.dirname(path.rstrip("/"))
        if not parent:
            raise
        make_directory(parent)
        make_directory(path)


def opener(path: str, flags: int) -> int:
    """The opener for `open`, by which a new file has FILE_MODE."""
    return os.open(path, flags, FILE_MODE)


class File(Protocol):
    """An open file. Positions and lengths are bytes."""

    path: str

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Writes all of `data` after the last write of this object (from the beginning at first)."""

    def pwrite(self, data: bytes | bytearray | memoryview, at: int) -> None:
        """Writes all of `data` from position `at`; normally one system call."""

    def pread(self, length: int, at: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""

    def pread_cached(self, length: int, at: int) -> bytes | None:
        """Like `pread`, but None when that would wait for the disk, as far as the system reports it."""

    def map(self, length: int) -> mmap.mmap | bytes:
        """Maps the first `length` bytes, for many small reads without system calls; may outlive the file.

        Later writes may or may not be visible. Accessing bytes that were cut off meanwhile kills the process.
        """

    def truncate(self, size: int) -> None:
        """Cuts the file, or extends it with zeros that take no disk space yet."""

    def size(self) -> int:
        """Bytes in the file."""

    def reserve(self, at: int, length: int) -> bool:
        """Reserves disk space for writes from `at`, if that is worthwhile; returns whether it was reserved. The size
        does not change. Blocks."""

    def give_back(self) -> None:
        """Frees reserved disk space beyond the end of the file."""

    def sync(self) -> None:
        """fdatasync: the data is durable on return. May block for long."""

    def is_cached(self, length: int, at: int) -> bool:
        """Whether a read of these bytes would not wait for the disk, as far as the system reports it without waiting."""

    def fileno(self) -> int:
        """The descriptor, for `os.sendfile`."""

    def close(self) -> None:
        """Closes the descriptor now. May be called twice."""


class FileSystem(Protocol):
    """The disk for the storage floor. Paths are absolute; every method may raise OSError."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Opens for reading and writing; FileNotFoundError unless it exists or `create`."""

    def open_unnamed(self, directory: str) -> File | None:
        """A new file without a name, which is deleted with its last reference unless `link` names it; None where that
        is not supported."""

    def link(self, path: str, file: File) -> None:
        """Names a file of `open_unnamed`, in the same file system. FileExistsError when the name is taken."""

    def is_short_of_files(self) -> bool:
        """Whether most of the files that this process may open were open at some time since the last call."""

    def relieve_with(self, close_some: Callable[[], None] | None) -> None:
        """Sets a callback for each open of a file while most permitted files are open, and opens a reserve of descriptors.

        The callback runs in the thread that opens the file. None ends that, and closes the reserve.
        """

    def is_scarce(self, file: File) -> bool:
        """Whether the file was one of the last that this process may open, so that no answer may hold it while it waits for its client."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory of this name exists."""

    def is_directory(self, path: str) -> bool:
        """Whether it is a directory; False when it does not exist."""

    def size(self, path: str) -> int:
        """Size of the file in bytes. FileNotFoundError when it does not exist."""

    def modified_ms(self, path: str) -> int:
        """Time of the last change of the file's content, in milliseconds since the epoch."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Sets the time that `modified_ms` returns."""

    def read_file(self, path: str) -> bytes:
        """The content of a small file. FileNotFoundError when it does not exist."""

    def list_directory(self, path: str) -> list[str]:
        """Names of the entries, sorted."""

    def make_directory(self, path: str) -> None:
        """Creates the directory and its parents; does nothing when it exists."""

    def rename(self, old: str, new: str) -> None:
        """Renames atomically; replaces `new`."""

    def unlink(self, path: str) -> None:
        """Removes a file. FileNotFoundError when it does not exist."""

    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""

    def sync_directory(self, path: str) -> None:
        """Makes creations, renames and removals in this directory durable."""

    def sync_everything(self, path: str) -> bool:
        """Makes all writes to the file system of the directory `path` durable; False where that is not supported.
        Blocks."""

    def total_and_free_bytes(self, path: str) -> tuple[int, int]:
        """Size of the file system of `path`, and its space available to this process."""

    def try_lock(self, path: str) -> File | None:
        """Locks the file `path` exclusively, against this and other processes; creates it if missing. None if it is
        locked already."""

    def unlock(self, lock: File) -> None:
        """Releases a lock of `try_lock`."""


_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""Errors of file systems, and of old systems, without this feature."""


_RESERVE = 8
"""Descriptors for calls while no other is free, mostly of threads, which close no files of logs."""


class RealFileSystem:
    """A `FileSystem` on the real disk."""

    def __init__(self) -> None:
        self._locked: set[str] = set()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._many = sys.maxsize if limit == resource.RLIM_INFINITY else limit * 3 // 4
        self._last = sys.maxsize if limit == resource.RLIM_INFINITY else limit * 13 // 16
        self._has_many = False
        self._close_some: Callable[[], None] | None = None
        self._reserve: list[RealFile] = []
        self._reserved = 0
        """Size of a full reserve."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> RealFile:
        flags = _OPEN_READ if read_only else _OPEN_WRITE
        if create:
            flags |= os.O_CREAT
        fd = self._with_descriptor(os.open, path, flags, FILE_MODE)
        if fd > self._many:  # the system assigns the lowest free number
            self._has_many = True
            if self._close_some is not None:
                self._close_some()
        return RealFile(path, fd)

    def _with_descriptor(self, call: Callable[..., T], *arguments: str | int) -> T:
        """Calls `call`, and once more if no descriptor was free. Raises OSError."""
        try:
            return call(*arguments)
        except OSError as error:
            if error.errno not in SHORTAGES:
                raise
        self._has_many = True
        if self._close_some is not None:
            self._close_some()
        with suppress(IndexError):
            self._reserve.pop().close()
        return call(*arguments)

    def _fill_reserve(self) -> None:
        """Opens the missing descriptors of the reserve, while the process has others."""
        with suppress(OSError):
            while len(self._reserve) < self._reserved:
                self._reserve.append(RealFile(os.devnull, os.open(os.devnull, _OPEN_READ)))

    def open_unnamed(self, directory: str) -> RealFile | None:
        try:
            file = RealFile(directory, self._with_descriptor(os.open, directory, os.O_TMPFILE | _OPEN_WRITE, FILE_MODE))
        except OSError as error:
            if error.errno in _NO_UNNAMED_FILES:
                return None
            raise
        # The file is not needed yet, and the descriptor may soon be.
        return file if file.fileno() <= self._many else None

    def link(self, path: str, file: File) -> None:
        fd = file.fileno()
        # With a directory argument it calls linkat, which alone follows the symbolic link; absolute paths ignore the
        # argument.
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
        file.path = path

    def is_short_of_files(self) -> bool:
        self._fill_reserve()
        found, self._has_many = self._has_many, False
        return found

    def relieve_with(self, close_some: Callable[[], None] | None) -> None:
        self._close_some = close_some
        self._reserved = 0 if close_some is None else _RESERVE
        self._reserve.clear()
        self._fill_reserve()

    def is_scarce(self, file: File) -> bool:
        return file.fileno() > self._last

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def read_file(self, path: str) -> bytes:
        fd = self._with_descriptor(os.open, path, _OPEN_READ)  # open() takes three times as long
        try:
            parts = []
            while part := os.read(fd, _READ_BYTES):
                parts.append(part)
        finally:
            os.close(fd)
        return b"".join(parts)

    def list_directory(self, path: str) -> list[str]:
        return sorted(self._with_descriptor(os.listdir, path))

    def make_directory(self, path: str) -> None:
        make_directory(path)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        fd = self._with_descriptor(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_everything(self, path: str) -> bool:
        from ottla.storage.disk.syncfs import syncfs  # importing ctypes takes 2 ms, and a starting broker has nothing to sync

        return self._with_descriptor(syncfs, path)

    def total_and_free_bytes(self, path: str) -> tuple[int, int]:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def try_lock(self, path: str) -> File | None:
        # A record lock (fcntl), as Apache Kafka takes: neither may open the other's directory. It does not exclude the
        # own process, and closing any descriptor of the file releases it; so own locks are tracked and the file is not
        # opened again.
        real = os.path.realpath(path)
        if real in self._locked:
            return None
        file = self.open(path, create=True)
        try:
            fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.close()
            return None
        self._locked.add(real)
        return file

    def unlock(self, lock: File) -> None:
        self._locked.discard(os.path.realpath(lock.path))
        lock.close()
