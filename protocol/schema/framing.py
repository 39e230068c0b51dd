"""Cuts a stream of bytes into frames: a length of four bytes, then that many bytes. Has no sockets: bytes in, frames out.

Used by clients of other brokers, by tests, and by other readers of a stream. The broker's own connections cut frames in place, in their
receive buffer, which saves a copy. They follow the same rules (`frame_length`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from ottla.protocol.schema.wire import ProtocolError

LENGTH_BYTES: Final = 4

_LENGTH = struct.Struct(">i")


class InvalidFrame(ProtocolError):
    """The length of a frame is negative or above the limit. Later bytes of the connection cannot be trusted."""

    def __init__(self, length: int, max_bytes: int) -> None:
        super().__init__(f"a frame of {length} bytes; at most {max_bytes} are allowed")
        self.length = length
        self.max_bytes = max_bytes


def frame_length(buf: bytes | bytearray | memoryview, offset: int, max_bytes: int) -> int:
    """The length at `offset`, where four bytes must be present. Raises InvalidFrame."""
    length: int = _LENGTH.unpack_from(buf, offset)[0]
    if not 0 <= length <= max_bytes:
        raise InvalidFrame(length, max_bytes)
    return length


def frame(*parts: bytes | memoryview) -> bytes:
    """The parts as one frame, preceded by its length."""
    return b"".join((_LENGTH.pack(sum(len(part) for part in parts)), *parts))


class FrameReader:
    """Collects the bytes of a stream and returns whole frames, each as a new bytes object.

    It never holds more than one frame of `max_bytes` and the bytes fed last. After InvalidFrame the reader must not be used.
    """

    __slots__ = ("_buffer", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._buffer = bytearray()
        self._max_bytes = max_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """The frames that `data` completes. The caller must take all of them before it feeds more. Raises InvalidFrame."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= LENGTH_BYTES:
                end = start + LENGTH_BYTES + frame_length(buffer, start, self._max_bytes)
                if end > len(buffer):
                    return
                body = bytes(memoryview(buffer)[start + LENGTH_BYTES : end])
                start = end
                yield body
        finally:
            del buffer[:start]
