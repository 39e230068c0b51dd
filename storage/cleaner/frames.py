"""What `cleaner_process` and `cleaner_worker` say to each other: frames of four bytes of length and as many of JSON.

By itself, so that the broker need not import what only its child runs.
"""

import struct
from typing import IO

_LENGTH = struct.Struct(">I")


def write_frame(file: IO[bytes], data: bytes) -> None:
    """One frame, flushed. Raises OSError."""
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
    """The first frame of what was read so far, taken out of it; None if it is not complete."""
    if len(buffer) < _LENGTH.size:
        return None
    end = _LENGTH.size + _LENGTH.unpack_from(buffer)[0]
    if len(buffer) < end:
        return None
    data = bytes(buffer[_LENGTH.size : end])
    del buffer[:end]
    return data
