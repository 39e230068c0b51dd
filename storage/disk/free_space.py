"""Keeps a part of a disk free for logs: caches of remote segments lie beside them in the first log directory.

A log that cannot be written takes its directory offline. Records that are not in a cache are only read once more.
"""

from __future__ import annotations

from typing import Final

from ottla.storage.disk.filesystem import FileSystem

SHARE: Final = 20
"""The part of the disk that is for logs alone: a twentieth."""
MOST_BYTES: Final = 4096 * 1024 * 1024
"""The same in bytes, on a large disk."""


def spare_bytes(filesystem: FileSystem, directory: str) -> int:
    """Returns the bytes that a cache may still take of the disk of a directory; a negative number if it has to give some back.

    Blocks. Raises OSError.
    """
    total, free = filesystem.total_and_free_bytes(directory)
    return free - min(total // SHARE, MOST_BYTES)
