"""A part of a file that a response carries: `os.sendfile` reads it without a copy.

Made by the log, sent by the network. A region holds its `File`, and a `File` closes its descriptor with its last reference,
so a segment that is deleted while a slow consumer still reads it stays readable until that response is out.
"""

from storage.filesystem import File


class FileRegion:
    """`length` bytes of `file` from `position`."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes, copied; for small bodies, TLS, and what the broker itself reads."""
        return self.file.pread(self.length, self.position)
