"""Reads the facts of a host on which brokers depend: limits, mounts, space, flush times, the clock, names."""

import ctypes
import os
import resource
import socket
import statistics
import time
from pathlib import Path
from typing import NamedTuple, Protocol

_FLUSHES = 10
_FLUSHED_BYTES = 4096
_TIMEX_BYTES = 512
"""More than the size of struct timex."""
_TIME_ERROR = 5
"""adjtimex(2): the clock is not synchronised."""


class Mount(NamedTuple):
    """The file system below a path."""

    point: str
    kind: str
    options: frozenset[str]


class Space(NamedTuple):
    """Free space for an unprivileged process, in bytes, and inodes; a file system without a limit of inodes has 0 in total."""

    free: int
    total: int
    free_inodes: int
    total_inodes: int


class Host(Protocol):
    """The facts; tests replace it. None stands for a fact that cannot be found out."""

    def open_files(self, pid: int | None) -> int | None:
        """The largest number of open files that the process, or a new one, may have."""

    def memory_maps(self) -> int | None:
        """The largest number of memory maps of a process."""

    def mount(self, path: str) -> Mount | None:
        """The mount of a path."""

    def space(self, path: str) -> Space | None:
        """The free space on the file system of a path."""

    def flush_seconds(self, path: str) -> float | None:
        """The median time of a write of 4 KiB with fsync, on a file without a name."""

    def is_clock_synchronised(self) -> bool | None:
        """Whether the kernel knows that its clock is right."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def own_name(self) -> str:
        """The name that a broker advertises for a listener without a host."""

    def addresses(self, name: str) -> list[str]:
        """The addresses of a name; none if it cannot be resolved."""

    def name_of(self, address: str) -> str | None:
        """The name of an address."""


class RealHost:
    """This host."""

    def open_files(self, pid: int | None) -> int | None:
        """See Host."""
        if not pid:
            return resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        try:
            lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
        except OSError:
            return None
        limits = next((line.split()[-2] for line in lines if line.startswith("Max open files")), "")
        return int(limits) if limits.isdecimal() else None

    def memory_maps(self) -> int | None:
        """See Host."""
        try:
            return int(Path("/proc/sys/vm/max_map_count").read_text())
        except (OSError, ValueError):
            return None

    def mount(self, path: str) -> Mount | None:
        """See Host."""
        try:
            text = Path("/proc/self/mountinfo").read_text()
        except OSError:
            return None
        return mount_of(os.path.realpath(path), text)

    def space(self, path: str) -> Space | None:
        """See Host."""
        try:
            found = os.statvfs(path)
        except OSError:
            return None
        return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, found.f_favail, found.f_files)

    def flush_seconds(self, path: str) -> float | None:
        """See Host."""
        try:
            file = os.open(path, os.O_TMPFILE | os.O_RDWR, 0o600)
        except OSError:
            return None
        times = []
        try:
            for position in range(_FLUSHES):
                began = time.perf_counter()
                os.pwrite(file, bytes(_FLUSHED_BYTES), position * _FLUSHED_BYTES)
                os.fsync(file)
                times.append(time.perf_counter() - began)
        except OSError:
            return None
        finally:
            os.close(file)
        return statistics.median(times)

    def is_clock_synchronised(self) -> bool | None:
        """See Host."""
        adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
        state = -1 if adjtimex is None else adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
        return None if state < 0 else state != _TIME_ERROR

    def now(self) -> float:
        """See Host."""
        return time.time()

    def own_name(self) -> str:
        """See Host."""
        return socket.getfqdn()

    def addresses(self, name: str) -> list[str]:
        """See Host."""
        try:
            return sorted({str(each[4][0]) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
        except (OSError, UnicodeError):  # the latter for a name with an empty or too long part
            return []

    def name_of(self, address: str) -> str | None:
        """See Host."""
        try:
            return socket.gethostbyaddr(address)[0]
        except OSError:
            return None


def mount_of(path: str, mountinfo: str) -> Mount | None:
    """The mount of a real path in the text of /proc/self/mountinfo: the last of the longest mount points above it."""
    best: Mount | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 6 or len(rest) < 3:
            continue
        point = fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        is_above = point in {"/", path} or path.startswith(f"{point}/")
        if is_above and (best is None or len(point) >= len(best.point)):
            best = Mount(point, rest[0], frozenset((*fields[5].split(","), *rest[2].split(","))))
    return best
