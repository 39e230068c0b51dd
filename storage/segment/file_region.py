"""A part of a file that a response carries: `os.sendfile` reads it without a copy.

Made by the log, sent by the network. A region holds its `File`, and a `File` closes its descriptor with its last reference,
so a segment that is deleted while a slow consumer still reads it stays readable until that response is out.
"""

from typing import TYPE_CHECKING

from protocol.compiled import compiled
from storage.disk.filesystem import File

_WARM_BYTES = 256 * 1024


class Region:
    """What a `FileRegion` holds. Nobody changes it: another place is another region."""

    __slots__ = ("end_is_cached", "file", "length", "position")

    def __init__(self, file: File, position: int, length: int, end_is_cached: bool = False) -> None:
        self.end_is_cached = end_is_cached
        self.file = file
        self.position = position
        self.length = length


if not TYPE_CHECKING and (_native := compiled("storage.native")) is not None:
    Region = _native.Region


class FileRegion(Region):
    """`length` bytes of `file` from `position`. `end_is_cached`: whoever made it has just looked at what is there where it ends."""

    __slots__ = ()

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes, copied; for small bodies, TLS, and what the broker itself reads."""
        return self.file.pread(self.length, self.position)

    def is_cached(self) -> bool:
        """Whether sending it would not wait for the disk, as far as the page cache tells without waiting (0.5 µs per 64 KiB)."""
        return self.file.is_cached(self.length, self.position)

    def warm(self) -> None:
        """Pulls the bytes into the page cache. Blocks; safe on any thread, for it changes nothing."""
        position, end = self.position, self.position + self.length
        while position < end and self.file.pread(min(_WARM_BYTES, end - position), position):
            position += _WARM_BYTES


if not TYPE_CHECKING and _native is not None:
    _native.find_as(FileRegion)
