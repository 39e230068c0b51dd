"""The port to the disk, and the real disk behind it.

Everything the storage floor does to files goes through a `FileSystem`, so that tests can put one in memory, or one that fails at
the n-th call, in its place. Errors are the operating system's (`OSError`); the log turns them into `LogDirFailure`.

Invariants: a `File` writes everything or raises; it closes its descriptor with its last reference, so a region of a deleted file
stays readable.
"""

import errno
import fcntl
import mmap
import os
import resource
import sys
from collections.abc import Callable
from typing import Protocol

from storage.disk.real_file import RealFile

_READ_BYTES = 1 << 20
_OPEN_READ = os.O_RDONLY | os.O_CLOEXEC
_OPEN_WRITE = os.O_RDWR | os.O_CLOEXEC


class File(Protocol):
    """An open file. Positions and lengths are bytes."""

    path: str

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """All of `data` after what this object wrote last (from the beginning at first)."""

    def pwrite(self, data: bytes | bytearray | memoryview, at: int) -> None:
        """All of `data` from position `at`; normally one system call."""

    def pread(self, length: int, at: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""

    def pread_cached(self, length: int, at: int) -> bytes | None:
        """As `pread`, but None when that would wait for the disk, as far as can be told."""

    def map(self, length: int) -> mmap.mmap | bytes:
        """The first `length` bytes, for many small reads without a system call each; may outlive the file.

        What is written later may or may not show. To look at bytes that were cut off meanwhile is fatal.
        """

    def truncate(self, size: int) -> None:
        """Cuts the file, or extends it with zeros that need no disk space yet."""

    def size(self) -> int:
        """Bytes in the file."""

    def reserve(self, at: int, length: int) -> bool:
        """Has disk space set aside for what will be written there, if that pays; whether it was. The size stays. Blocks."""

    def give_back(self) -> None:
        """Lets go of disk space behind the end of the file."""

    def sync(self) -> None:
        """fdatasync: the data is on the disk when this returns. Blocks for long."""

    def is_cached(self, length: int, at: int) -> bool:
        """Whether a read of these bytes would not have to wait for the disk, as far as can be told without waiting."""

    def fileno(self) -> int:
        """The descriptor, for `os.sendfile`."""

    def close(self) -> None:
        """Closes the descriptor now. Harmless when done twice."""


class FileSystem(Protocol):
    """What storage asks of a disk. Paths are absolute; every method may raise OSError."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Opens for reading and writing; FileNotFoundError unless it exists or `create`."""

    def open_unnamed(self, directory: str) -> File | None:
        """A new file without a name, which is gone with its last reference unless `link` names it; None where there is none to be had."""

    def link(self, path: str, file: File) -> None:
        """Gives a file of `open_unnamed`, of the same file system, its name. FileExistsError when that is taken."""

    def is_short_of_files(self) -> bool:
        """Whether most of the files that this process may have open were open at some time since the last call."""

    def relieve_with(self, close_some: Callable[[], None]) -> None:
        """Calls `close_some` whenever a file is opened while most of those are, in the thread that opens it."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of this name."""

    def is_directory(self, path: str) -> bool:
        """Whether it is a directory; False when there is nothing."""

    def size(self, path: str) -> int:
        """Bytes of the file. FileNotFoundError when there is none."""

    def modified_ms(self, path: str) -> int:
        """Time of the last change of the file's content, in milliseconds since the epoch."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Have `modified_ms` say this from now on."""

    def read_file(self, path: str) -> bytes:
        """All of a small file. FileNotFoundError when there is none."""

    def list_directory(self, path: str) -> list[str]:
        """Names of the entries, sorted."""

    def make_directory(self, path: str) -> None:
        """Creates the directory and its parents; harmless when it exists."""

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces `new`."""

    def unlink(self, path: str) -> None:
        """Removes a file. FileNotFoundError when there is none."""

    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""

    def sync_directory(self, path: str) -> None:
        """Makes creations, renames and removals in this directory durable."""

    def sync_everything(self, path: str) -> bool:
        """Makes durable all that was written to the file system of the directory `path`; False where that cannot be asked for. Blocks."""

    def total_and_free_bytes(self, path: str) -> tuple[int, int]:
        """Size of the file system of `path`, and what is left for this process."""

    def try_lock(self, path: str) -> File | None:
        """Exclusive lock on the file `path`, created if need be, against this and other processes; None if another has it."""

    def unlock(self, lock: File) -> None:
        """Gives up what `try_lock` gave."""


_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""What file systems, and old systems, say that know none."""


class RealFileSystem:
    """A `FileSystem` on the real disk."""

    def __init__(self) -> None:
        self._locked: set[str] = set()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._many = sys.maxsize if limit == resource.RLIM_INFINITY else limit * 3 // 4
        self._has_many = False
        self._close_some: Callable[[], None] = lambda: None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> RealFile:
        flags = _OPEN_READ if read_only else _OPEN_WRITE
        if create:
            flags |= os.O_CREAT
        try:
            fd = os.open(path, flags, 0o644)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            self._close_some()
            fd = os.open(path, flags, 0o644)
        if fd > self._many:  # the system gives the lowest number that is free
            self._has_many = True
            self._close_some()
        return RealFile(path, fd)

    def open_unnamed(self, directory: str) -> RealFile | None:
        try:
            file = RealFile(directory, os.open(directory, os.O_TMPFILE | _OPEN_WRITE, 0o644))
        except OSError as error:
            if error.errno in _NO_UNNAMED_FILES:
                return None
            raise
        # Nobody needs it yet, and somebody will need the number.
        return file if file.fileno() <= self._many else None

    def link(self, path: str, file: File) -> None:
        fd = file.fileno()
        # With a directory it calls linkat, which alone follows the symbolic link; that this one is none does not matter to absolute paths.
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
        file.path = path

    def is_short_of_files(self) -> bool:
        found, self._has_many = self._has_many, False
        return found

    def relieve_with(self, close_some: Callable[[], None]) -> None:
        self._close_some = close_some

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
        fd = os.open(path, _OPEN_READ)  # open() costs three times as much
        try:
            parts = []
            while part := os.read(fd, _READ_BYTES):
                parts.append(part)
        finally:
            os.close(fd)
        return b"".join(parts)

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_everything(self, path: str) -> bool:
        from storage.disk.syncfs import syncfs  # ctypes takes 2 ms, and a broker that starts has nothing to sync

        return syncfs(path)

    def total_and_free_bytes(self, path: str) -> tuple[int, int]:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def try_lock(self, path: str) -> File | None:
        # A record lock (fcntl), because that is what Apache Kafka takes: neither may open the other's directory. It does not exclude the
        # own process, and closing any descriptor of the file drops it; so own locks are remembered and the file is not opened again.
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
