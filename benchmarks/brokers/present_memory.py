"""Keeps the host's share out of measurements on a virtual machine that gives free memory back.

With free page reporting (virtio-balloon) the host takes free blocks of 2 MiB away within seconds. A program that uses their pages again
waits for every page: where this was measured, 10 to 12 µs instead of 1 or less, and 3 ms for a batch of 1 MB. The removal of blocks costs
processor time of the guest, too. How much of both affects a load depends on chance: after different earlier loads the same broker was four
times as fast in one turn as in another, and its p99 was between 0.2 and 30 ms. A machine whose page cache has filled over days, as those of
brokers do, has no free blocks, and none of these effects.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_REPORTING = Path("/sys/module/page_reporting")
_MEMORY = Path("/proc/meminfo")
_BLOCK_BYTES = 2 << 20
_SHARE = 2 / 3  # of the memory that is available: a broker's, its clients' and what the page cache takes in a turn
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of linux/mman.h (Linux 5.14), for which the mmap module has no name


@contextmanager
def free_memory_present() -> Iterator[int]:
    """Keep most of the free memory present until the context ends. Gives its size in bytes; 0 where the kernel reports no free pages.

    All of it is used once, and freed again except for a page of every block: the rest is free for any program, but no block is free as a
    whole.
    """
    length = int(_available_bytes() * _SHARE) // _BLOCK_BYTES * _BLOCK_BYTES if _REPORTING.exists() else 0
    if not length:
        yield 0
        return
    with mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        try:
            memory.madvise(_POPULATE_WRITE)
        except OSError:  # an older kernel
            yield 0
            return
        for block in range(0, length, _BLOCK_BYTES):
            memory.madvise(mmap.MADV_DONTNEED, block + mmap.PAGESIZE, _BLOCK_BYTES - mmap.PAGESIZE)
        yield length


def _available_bytes() -> int:
    available = next(line for line in _MEMORY.read_text(encoding="ascii").splitlines() if line.startswith("MemAvailable:"))
    return int(available.split()[1]) * 1024
