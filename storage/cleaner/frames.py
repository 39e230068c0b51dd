"""Frames the messages between `process` and `worker`: four bytes of length, then JSON.

A module of its own, so that the broker does not import the child's modules.
"""

import struct
from typing import IO

_LENGTH = struct.Struct(">I")


def write_frame(file: IO[bytes], data: bytes) -> None:
    """Writes one frame and flushes. Raises OSError."""
    file.write(_LENGTH.pack(len(data)) + data)
    file.flush()


def read_frame(file: IO[bytes]) -> bytes | None:
    """The next frame; None at the end. Blocks."""
    head = file.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    length = _LENGTH.unpack(head)[0]
    data = file.read(length)
    return data if len(data) == length else None


def take_frame(buffer: bytearray) -> bytes | None:
    """Removes and returns the first frame in the buffer; None if it is incomplete."""
    if len(buffer) < _LENGTH.size:
        return None
    end = _LENGTH.size + _LENGTH.unpack_from(buffer)[0]
    if len(buffer) < end:
        return None
    data = bytes(buffer[_LENGTH.size : end])
    del buffer[:end]
    return data
