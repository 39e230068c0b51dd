"""Represents a part of a file in a response. `os.sendfile` sends it without a copy.

Made by the log, sent by the network. A region holds its `File`, and a `File` closes its descriptor with its last reference. So a segment
that is deleted while a slow consumer reads it stays readable until the response is sent.
"""

from ottla.protocol.short_lived import short_lived
from ottla.storage.disk.filesystem import File

_WARM_BYTES = 256 * 1024


@short_lived
class FileRegion:
    """`length` bytes of `file` from `position`. Immutable.

    `end_is_cached`: the creator has just read the bytes at the end. `begun`: the first bytes, if they were read already.
    """

    __slots__ = ("begun", "end_is_cached", "file", "length", "position")

    def __init__(
        self, file: File, position: int, length: int, end_is_cached: bool = False, begun: bytes | memoryview | None = None
    ) -> None:
        self.file = file
        self.position = position
        self.length = length
        self.end_is_cached = end_is_cached
        self.begun = begun

    def __len__(self) -> int:
        return self.length

    def cut(self, length: int) -> "FileRegion":
        """The first bytes of the region. It may be in memory only, so these are what it has read already."""
        begun = None if self.begun is None else self.begun[:length]
        return FileRegion(self.file, self.position, length, False, begun)

    def holds_all(self) -> bool:
        """Whether `begun` is the whole region."""
        return self.begun is not None and len(self.begun) == self.length

    def read(self) -> bytes:
        """The bytes, copied. For small bodies, TLS, and reads by the broker itself."""
        if self.begun is not None and self.holds_all():
            return bytes(self.begun)
        return self.file.pread(self.length, self.position)

    def is_cached(self) -> bool:
        """Whether sending would not wait for the disk, as far as the page cache shows without waiting (0.5 µs per 64 KiB)."""
        return self.file.is_cached(self.length, self.position)

    def warm(self) -> None:
        """Reads the bytes into the page cache. Blocks; safe on any thread, because it changes nothing."""
        position, end = self.position, self.position + self.length
        while position < end and self.file.pread(min(_WARM_BYTES, end - position), position):
            position += _WARM_BYTES
