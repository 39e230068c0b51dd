"""The parts of answers, in memory and in files, put behind one another as they are to leave."""

from __future__ import annotations

import errno
import mmap
import os
from struct import Struct
from typing import Final

from broker.network.request_channel import Parts
from storage.segment.file_region import FileRegion

INLINE_BYTES: Final = 16 * 1024
"""A region up to this size is cheaper to read and write together with its header than to send by itself."""
ALIGNED_BYTES: Final = 256 * 1024
PAGE_BYTES: Final = mmap.PAGESIZE

_length: Final = Struct(">i").pack
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", None)


def gather(parts: Parts, out: Parts) -> tuple[int, bool]:
    """Puts one response, its length first, behind what is in `out`; its size, and whether file regions are left in it.

    Small regions become bytes, unless that would wait for the disk.
    """
    size = 0
    has_regions = False
    length_at = len(out)
    out.append(b"")
    for part in parts:
        if isinstance(part, FileRegion):
            length = part.length
            size += length
            small = read_cached(part) if length <= INLINE_BYTES else None
            if small is not None:
                out.append(small)
                continue
            has_regions = True
        else:
            size += len(part)
        out.append(part)
    out[length_at] = _length(size)
    return size, has_regions


def read_cached(region: FileRegion) -> bytes | bytearray | memoryview | None:
    """The bytes of a small region; None when reading them would wait for the disk, or fails: `FileSender` sees to it."""
    begun = region.begun
    if begun is not None and len(begun) == region.length:
        return begun
    if _NOWAIT is None:
        return region.read()
    # One call that reads or refuses: a probe of both ends and a read would be three.
    data = bytearray(region.length)
    try:
        count = os.preadv(region.file.fileno(), [data], region.position, _NOWAIT)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
            return region.read()
        return None
    return data if count == region.length else None


def from_next_page(region: FileRegion, memory: list[bytes | bytearray | memoryview]) -> FileRegion:
    """Puts the bytes up to the next page of the file into `memory`, if that pays, and returns the rest.

    The kernel splices 16 pages at once. 64 KiB from the middle of a page on are 17, which means a second round through TCP, with a packet
    and a wake-up of the receiver of its own: 73 µs instead of 38; 128 KiB cost 86 instead of 47, and from 1 MiB on it makes no difference.
    """
    begun = region.position % PAGE_BYTES
    if not begun or not INLINE_BYTES < region.length <= ALIGNED_BYTES:
        return region
    length = PAGE_BYTES - begun
    first = read_cached(FileRegion(region.file, region.position, length))
    if first is None:
        return region
    memory.append(first)
    return FileRegion(region.file, region.position + length, region.length - length)


def without_sent(parts: Parts, gone: int, sent: int) -> Parts:
    """Without the first `gone` parts, and without `sent` bytes of the next."""
    rest = parts[gone:]
    if sent:
        first = rest[0]
        if isinstance(first, FileRegion):
            rest[0] = FileRegion(first.file, first.position + sent, first.length - sent, first.end_is_cached)
        else:
            rest[0] = first[sent:]
    return rest
