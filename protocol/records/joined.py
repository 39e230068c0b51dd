"""Joins decompressed pieces in one buffer, and lets other threads run while a long piece is copied.

Worker threads use it for records that expand to many megabytes. Copying 128 MiB into new memory takes 60 ms, in which the event loop would
wait for the interpreter.
"""

from collections.abc import Sequence
from typing import final

from ottla.protocol.records import room as rooms
from ottla.protocol.records.room import Data


def join(pieces: Sequence[Data]) -> bytes:
    """The pieces one after the other, in bytes of exactly their size."""
    return rooms.join(pieces)


def give_back(data: bytearray | memoryview, start: int = 0) -> None:
    """Lose the bytes of a buffer from `start` on, before it is freed. To free 128 MiB at once would hold the interpreter for 20 ms."""
    rooms.give_back(data, start)


@final
class Joined:
    """The pieces so far are `room[:size]`. The buffer grows when they need more than was expected.

    Compiled, memory that was expected and is not needed is not taken from the system.
    """

    __slots__ = ("room", "size")

    def __init__(self, expected_bytes: int) -> None:
        self.room = rooms.room_for(expected_bytes)
        self.size = 0

    def add(self, piece: Data) -> None:
        """Append a piece."""
        size = self.size + len(piece)
        if size > len(self.room):
            room = rooms.room_for(max(size, 2 * len(self.room)))
            rooms.put_long(room, 0, memoryview(self.room)[: self.size])
            self.room = room
        self.size = rooms.put_long(self.room, self.size, piece)

    def view(self) -> memoryview:
        """The bytes of all pieces, which can be written."""
        return memoryview(self.room)[: self.size]
