"""Bounds the memory that the large requests of all connections take while they come in: Kafka's MemoryPool (KIP-72).

A request that does not fit the shared receive buffer takes its whole size here before memory is allocated for it, and gives it back when it
is handled or its client is gone. What finds no room is not read further until there is some, longest waiting first. Small requests need
nothing of this, so that whoever keeps large ones unfinished holds up only large ones.
"""

from typing import Protocol


class Reader(Protocol):
    """Who waits for room."""

    def on_room(self) -> None:
        """It was taken for the reader."""


class FrameMemory:
    """`max_bytes` is `queued.max.request.bytes`, -1 for no limit; `taken` what requests have now."""

    __slots__ = ("_max_bytes", "_waiting", "taken")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._waiting: dict[Reader, int] = {}
        self.taken = 0

    def take(self, reader: Reader, size: int) -> bool:
        """Whether there is room. If not, `on_room` says when the reader has it."""
        if self._waiting or not self._has_room(size):
            self._waiting[reader] = size
            return False
        self.taken += size
        return True

    def give_back(self, size: int) -> None:
        """What a reader took."""
        self.taken -= size
        self._serve()

    def withdraw(self, reader: Reader) -> None:
        """The reader waits no more, if it did."""
        if self._waiting.pop(reader, None) is not None:
            self._serve()

    def _has_room(self, size: int) -> bool:
        return self._max_bytes <= 0 or not self.taken or self.taken + size <= self._max_bytes

    def _serve(self) -> None:
        while self._waiting:
            reader, size = next(iter(self._waiting.items()))
            if not self._has_room(size):
                return
            del self._waiting[reader]
            self.taken += size
            reader.on_room()
