"""Implements `File` for the real disk; `RealFileSystem` opens it."""

import mmap
import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, final

from ottla.protocol.compiled import compiled
from ottla.storage.disk.deleted_files import close_file
from ottla.storage.errors import SHORTAGES

if TYPE_CHECKING:
    from ottla.storage.disk.page_cache import PageCache

_COUNTED_BYTES = 128 * 1024
"""Size above which the kernel counts the cached pages, which takes as long as three probes."""
_PROBE_STEP = 64 * 1024
_BLOCK_BYTES = 512  # unit of st_blocks on any file system
_SLACK_BYTES = 1 << 20
"""Excess allocation that is not freed, because file systems round up or use some of it for their own tables."""
SMALL_BYTES = 64 * 1024
"""Bytes that are read without letting another thread run. A thread that reads 4 MiB so would stop the event loop for 1 ms, and for 8 into
memory that the virtual machine has not touched before."""
_PROBE = [bytearray(1)]  # its content is not used

_native = compiled("ottla.storage.disk.cached_reads")
_read_cached: Callable[[int, int, int], bytes | None] | None = None if _native is None else _native.read_cached


@final
class RealFile:
    """A `File` on the real disk."""

    __slots__ = ("_position", "descriptor", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.descriptor = fd
        self._position = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pwrite(data, self._position)
        self._position += len(data)

    def pwrite(self, data: bytes | bytearray | memoryview, at: int) -> None:
        written: int = os.pwrite(self.descriptor, data, at)
        if written != len(data):
            self._write_rest(memoryview(data), at, written)

    def _write_rest(self, data: memoryview, at: int, written: int) -> None:
        # A short write means a signal, a full disk or a quota; only the next call shows which.
        while written < len(data):
            count: int = os.pwrite(self.descriptor, data[written:], at + written)
            if count == 0:
                raise OSError(f"wrote {written} of {len(data)} bytes")
            written += count

    def pread(self, length: int, at: int) -> bytes:
        if length <= SMALL_BYTES and _read_cached is not None and (cached := _read_cached(self.descriptor, length, at)) is not None:
            return cached
        data: bytes = os.pread(self.descriptor, length, at)
        if len(data) == length or not data:
            return data
        chunks = [data]
        missing = length - len(data)
        while missing > 0:
            data = os.pread(self.descriptor, missing, at + length - missing)
            if not data:
                break
            chunks.append(data)
            missing -= len(data)
        return b"".join(chunks)

    def pread_cached(self, length: int, at: int) -> bytes | None:
        if _read_cached is not None and (cached := _read_cached(self.descriptor, length, at)) is not None:
            return cached
        data = bytearray(length)
        try:
            count = os.preadv(self.descriptor, [data], at, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return self.pread(length, at)  # see `is_cached`
        if count == length:
            return bytes(data)
        return bytes(data[:count]) if at + count >= self.size() else None

    def map(self, length: int) -> mmap.mmap | bytes:
        # Reading a hole allocates a page of a tmpfs, and kills the process when none is left.
        if length and os.lseek(self.descriptor, 0, os.SEEK_HOLE) >= length:
            try:
                return mmap.mmap(self.descriptor, length, access=mmap.ACCESS_READ)
            except OSError as error:  # a map has a descriptor of its own
                if error.errno not in SHORTAGES:
                    raise
        return self.pread(length, 0)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.descriptor, size)

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def reserve(self, at: int, length: int) -> bool:
        from ottla.storage.disk.disk_space import reserve  # importing ctypes takes 2 ms, and not every broker needs it

        return reserve(self.descriptor, at, length)

    def give_back(self) -> None:
        stat = os.fstat(self.descriptor)
        if stat.st_blocks * _BLOCK_BYTES - stat.st_size > _SLACK_BYTES:
            os.ftruncate(self.descriptor, stat.st_size)  # frees the blocks beyond the size

    def sync(self) -> None:
        os.fdatasync(self.descriptor)

    def is_cached(self, length: int, at: int) -> bool:
        last = at + length - 1
        if length > _COUNTED_BYTES:
            holds = _page_cache().holds(self.descriptor, length, at)
            if holds is not None:
                if not holds:
                    return False
                at = last  # then probe the last byte, because a page that is being read is not sufficient
        # The kernel reads ahead in larger units than this, so a hole between two probes is unlikely; if there is one,
        # sendfile waits.
        try:
            os.preadv(self.descriptor, _PROBE, last, os.RWF_NOWAIT)
            while at < last:
                os.preadv(self.descriptor, _PROBE, at, os.RWF_NOWAIT)
                at += _PROBE_STEP
        except BlockingIOError:
            return False
        except OSError:
            return True  # the file system does not support the query (overlayfs, some network ones): waiting is the only option
        return True

    def fileno(self) -> int:
        return self.descriptor

    def close(self) -> None:
        if self.descriptor >= 0:
            fd, self.descriptor = self.descriptor, -1
            os.close(fd)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            close_file(self.descriptor)


@cache
def _page_cache() -> "PageCache":
    from ottla.storage.disk.page_cache import PageCache  # importing ctypes takes 2 ms, and not every broker needs it

    return PageCache()
