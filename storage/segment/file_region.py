"""A part of a file that a response carries: `os.sendfile` reads it without a copy.

Made by the log, sent by the network. A region holds its `File`, and a `File` closes its descriptor with its last reference,
so a segment that is deleted while a slow consumer still reads it stays readable until that response is out.
"""

from storage.disk.filesystem import File

_WARM_BYTES = 256 * 1024


class FileRegion:
    """`length` bytes of `file` from `position`. Nobody changes it: another place is another region.

    `end_is_cached`: whoever made it has just looked at what is there where it ends. `begun`: its first bytes, if they were read along.
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

    def holds_all(self) -> bool:
        """Whether `begun` is all of it."""
        return self.begun is not None and len(self.begun) == self.length

    def read(self) -> bytes:
        """The bytes, copied; for small bodies, TLS, and what the broker itself reads."""
        if self.begun is not None and self.holds_all():
            return bytes(self.begun)
        return self.file.pread(self.length, self.position)

    def is_cached(self) -> bool:
        """Whether sending it would not wait for the disk, as far as the page cache tells without waiting (0.5 µs per 64 KiB)."""
        return self.file.is_cached(self.length, self.position)

    def warm(self) -> None:
        """Pulls the bytes into the page cache. Blocks; safe on any thread, for it changes nothing."""
        position, end = self.position, self.position + self.length
        while position < end and self.file.pread(min(_WARM_BYTES, end - position), position):
            position += _WARM_BYTES
