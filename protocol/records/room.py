"""Allocates and fills buffers for decompressed records, one call for each.

`room.pxd` has the same functions in C for compiled callers, as `ottla.protocol.records.record_step` has.
"""

from collections.abc import Sequence

Data = bytes | bytearray | memoryview

room_for = bytearray
"""A buffer of that many bytes with arbitrary contents. Compiled, memory that is never written is not taken from the system."""


def put_long(room: bytearray, at: int, value: Data) -> int:
    """Write a value. Returns the position after it. Compiled, other threads run while a long one is copied. Raises IndexError."""
    end = at + len(value)
    if end > len(room):
        raise IndexError("the room is too small")
    room[at:end] = value
    return end


def give_back(data: bytearray | memoryview, start: int) -> None:
    """Lose the bytes from `start` on. Compiled, the system takes their memory back, and other threads run meanwhile. Raises IndexError."""
    if not 0 <= start <= len(data):
        raise IndexError("the room is too small")


def join(pieces: Sequence[Data]) -> bytes:
    """The pieces one after the other. Compiled, other threads run while a long one is copied."""
    return b"".join(pieces)
