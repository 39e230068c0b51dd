"""Limits the memory that incoming large requests of all connections take: Kafka's MemoryPool (KIP-72).

A request that does not fit into the shared receive buffer reserves its whole size here before memory is allocated for it. The size is
released when the request is handled or its client has disconnected. A request without room is not read further until there is room; the one
that has waited longest is first. Small requests are not counted, so a client that leaves large requests unfinished delays only large ones.

Without a limit in the configuration only requests of HUGE_BYTES reserve their size, up to `ottla.large.requests.max.bytes`. Of the smaller
ones only what has arrived counts (`parts`), so an unfinished request takes no more than its client has sent. When the parts take half of
that limit, each of these requests reserves what it still lacks, like the others. So a request that has room never waits for another one,
and whatever its client sends arrives. Any request that has arrived, and waits for its turn or a slot, counts (`kept`) in both limits: these
end without the help of their clients.
"""

from typing import Final, Protocol

HUGE_BYTES: Final = 8 * 1024 * 1024
"""Smallest request that counts without `queued.max.request.bytes`, bytes. By default clients send at most 1 MiB."""
PARTS_DIVISOR: Final = 2
"""Share of `max_bytes` that requests which need no room may take in addition."""


MUCH_BYTES: Final = 32 * 1024 * 1024
"""Kept bytes that have to be freed before malloc gives memory back."""


class Reader(Protocol):
    """A reader that waits for room."""

    def on_room(self) -> None:
        """Called when room was taken for the reader."""


class FrameMemory:
    """The memory of incoming requests, at most `max_bytes`. Those below `counted_from` bytes need no room while `parts` are few.

    `taken` is the reserved memory. `parts` has the bytes that arrived without room, `kept` those of requests that wait for their turn.
    """

    __slots__ = ("_counted_from", "_max_bytes", "_waiting", "kept", "parts", "taken")

    def __init__(self, max_bytes: int, counted_from: int = 0) -> None:
        self._max_bytes = max_bytes
        self._counted_from = counted_from
        self._waiting: dict[Reader, int] = {}
        self.kept = 0
        self.parts = 0
        self.taken = 0

    def needs_room(self, size: int) -> bool:
        """Whether a request of `size` bytes reserves them before it arrives."""
        return size >= self._counted_from

    @property
    def parts_are_many(self) -> bool:
        """Whether requests that arrive without room have to reserve what they lack."""
        return self.parts + self.kept > self._max_bytes // PARTS_DIVISOR

    def take(self, reader: Reader, size: int) -> bool:
        """Take `size` bytes. Returns False if there is no room; then `on_room` is called once they are taken for the reader."""
        if self._waiting or not self._has_room(size):
            self._waiting[reader] = size
            return False
        self.taken += size
        return True

    def keep(self, size: int) -> None:
        """Count the bytes of a request that has arrived and waits for its turn."""
        self.kept += size

    def end_keeping(self, size: int) -> None:
        """Return bytes that were kept."""
        self.kept -= size
        self._serve()

    def give_back(self, size: int) -> None:
        """Return bytes that were taken."""
        self.taken -= size
        self._serve()

    def withdraw(self, reader: Reader) -> None:
        """Remove a waiting reader, if it waits."""
        if self._waiting.pop(reader, None) is not None:
            self._serve()

    def _has_room(self, size: int) -> bool:
        is_alone = not self.taken and self.kept <= self._max_bytes // PARTS_DIVISOR  # beside small ones, of which there always may be some
        return is_alone or self.taken + self.kept + size <= self._max_bytes

    @property
    def is_wanted(self) -> bool:
        """Whether a reader waits."""
        return bool(self._waiting)

    def _serve(self) -> None:
        while self._waiting:
            reader, size = next(iter(self._waiting.items()))
            if not self._has_room(size):
                return
            del self._waiting[reader]
            self.taken += size
            reader.on_room()


class Level:
    """The kept bytes over time. Blocks of less than a megabyte lie between others when they are freed, so malloc keeps them by itself."""

    __slots__ = ("_most",)

    def __init__(self) -> None:
        self._most = 0

    def has_fallen(self, kept_bytes: int) -> bool:
        """Whether MUCH_BYTES were freed since the highest level, or since the last time that this was so."""
        self._most = max(self._most, kept_bytes)
        if self._most - kept_bytes < MUCH_BYTES:
            return False
        self._most = kept_bytes
        return True
