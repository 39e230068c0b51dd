"""Limits the memory of transfers to and from the remote store: `ottla.remote.memory.bytes` for all of them together.

Transfers are copies, chunks, indexes, and the reads that prove a copy or begin the log of a follower. Each one takes its bytes once, before
it begins. No transfer waits for more while it holds some, so none waits for another forever.

Lives on the event loop. Those who wait for an index come first, then chunks, then copies.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

MEMORY_SHARE: Final = 4
"""The fraction of the memory that what the disk refuses may keep: chunks as much as indexes."""
READ_COPIES: Final = 4
"""Times that an index is in memory where it is read as a whole: as the store has read it, in a message, in the buffer of that, and here."""


class MemoryBudget:
    """Bytes that may be in memory at once. A request for more than all of them is served alone."""

    __slots__ = ("_copies", "_on_room", "_reads", "_relieve", "kept", "limit", "most_used", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.most_used = 0
        """The largest number of bytes that were taken at once."""
        self.kept = 0
        """The part of `used` that its owners give up when nothing else is taken, and there is no room."""
        self._reads: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._copies: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._on_room: Callable[[], None] = lambda: None
        self._relieve: list[Callable[[], int]] = []

    def call_on_room(self, on_room: Callable[[], None]) -> None:
        """Sets the one callback that uses room before copies do, when some was given back."""
        self._on_room = on_room

    def relieve_with(self, relieve: Callable[[], int]) -> None:
        """Adds a callback that gives up some of what is kept, and returns its bytes; 0 if it has none. Earlier ones are called first."""
        self._relieve.append(relieve)

    def try_take(self, size: int) -> bool:
        """Takes the bytes if there is room for them, or nothing else is taken, and no reader waits for an index."""
        return not self._reads and self._try_take(size)

    async def take(self, size: int, *, is_read: bool = False) -> None:
        """Waits until there is room, in the order of the calls. `is_read` is for what readers wait for. The caller gives the bytes back."""
        waiting = self._reads if is_read else self._copies
        if not waiting and (self._try_take(size) if is_read else self.try_take(size)):
            return
        place = size, asyncio.get_running_loop().create_future()
        waiting.append(place)
        try:
            await place[1]
        except asyncio.CancelledError:
            if place[1].done() and not place[1].cancelled():
                self.give_back(size)
            else:
                waiting.remove(place)
                self._serve()  # those behind it may need less
            raise

    @asynccontextmanager
    async def reserved(self, size: int, *, is_read: bool = False) -> AsyncIterator[None]:
        """Takes bytes as `take` does, and gives them back at the end."""
        await self.take(size, is_read=is_read)
        try:
            yield
        finally:
            self.give_back(size)

    def give_back(self, size: int) -> None:
        """Returns bytes that were taken."""
        self.used -= size
        self._serve()

    def keep(self, size: int) -> None:
        """Notes that bytes that were taken can be given up, by a callback of `relieve_with`: perhaps at once."""
        self.kept += size
        self._serve()

    def drop(self, size: int) -> None:
        """Returns bytes that were kept."""
        self.kept -= size
        self.give_back(size)

    def _try_take(self, size: int) -> bool:
        while self.used and self.used + size > self.limit:
            if self.used > self.kept or not self._gave_up():
                return False
        self.used += size
        self.most_used = max(self.most_used, self.used)
        return True

    def _gave_up(self) -> bool:
        """Has an owner give up some of what is kept."""
        for relieve in self._relieve:
            if size := relieve():
                self.used -= size
                self.kept -= size
                return True
        return False

    def _serve(self) -> None:
        self._serve_first(self._reads)
        self._on_room()
        self._serve_first(self._copies)

    def _serve_first(self, queue: deque[tuple[int, asyncio.Future[None]]]) -> None:
        while queue:
            wanted, waiting = queue[0]
            if not waiting.done():
                if (self._reads and queue is self._copies) or not self._try_take(wanted):
                    break
                waiting.set_result(None)
            queue.popleft()
