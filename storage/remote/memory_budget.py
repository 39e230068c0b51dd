"""Limits the memory of transfers to and from the remote store: `ottla.remote.memory.bytes` for all copies and chunks together.

Lives on the event loop. Reads of chunks come before copies: `take` of a copy waits behind them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class MemoryBudget:
    """Bytes that may be in memory at once. A request for more than all of them is served alone."""

    __slots__ = ("_copies", "_on_room", "_relieve", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._copies: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._on_room: Callable[[], None] = lambda: None
        self._relieve: Callable[[int], None] = lambda excess: None

    def call_on_room(self, on_room: Callable[[], None]) -> None:
        """Sets the one callback that uses room first, when some was given back."""
        self._on_room = on_room

    def relieve_with(self, relieve: Callable[[int], None]) -> None:
        """Sets the one callback that may lower `used` by this many bytes, because otherwise there is no room."""
        self._relieve = relieve

    def try_take(self, size: int) -> bool:
        """Takes the bytes if there is room for them, or nothing else is taken."""
        if self.used and self.used + size > self.limit:
            self._relieve(self.used + size - self.limit)
            if self.used and self.used + size > self.limit:
                return False
        self.used += size
        return True

    async def take(self, size: int) -> None:
        """Waits until there is room, in the order of the calls. The caller gives the bytes back."""
        if not self._copies and self.try_take(size):
            return
        waiting = asyncio.get_running_loop().create_future()
        self._copies.append((size, waiting))
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self.give_back(size)
            raise

    def give_back(self, size: int) -> None:
        """Returns bytes that were taken."""
        self.used -= size
        self._on_room()
        while self._copies:
            wanted, waiting = self._copies[0]
            if not waiting.done():
                if not self.try_take(wanted):
                    break
                waiting.set_result(None)
            self._copies.popleft()
