"""Counts the answers that clients do not read, and closes connections that hold much of them when all together take too much memory.

A `RequestChannel` owns the counts. A connection reports how much it holds (`count`) when a write was not taken at once, when it holds more,
and when nothing is left. In between bytes leave without an event, so `bytes` may be too large, but is never too small. Each check counts
anew before it closes anything.

A connection is closed only if its client's host has received nothing for PATIENCE_NS. A client that reads slowly is left alone, and so is
one whose answers wait for a thread of the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from ottla.broker.network.limits import FREE_UNREAD_BYTES, PATIENCE_NS
from ottla.pauses import pause

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection


@final
class Held:
    """The answers that one connection holds, in bytes, and what its client's host had received at the last check."""

    __slots__ = ("delivered", "since_ns", "size")

    def __init__(self) -> None:
        self.size = 0
        self.delivered: int | None = None
        self.since_ns = 0

    def is_stalled(self, delivered: int | None, now_ns: int) -> bool:
        """Whether `delivered` is what it was for the patience of others. None: the client is not what the answers wait for."""
        if delivered is None or delivered != self.delivered:
            self.delivered = delivered
            self.since_ns = now_ns
            return False
        return now_ns > self.since_ns + PATIENCE_NS


@final
class UnreadAnswers:
    """The counts of all connections. `bytes` is their sum, of which `most_bytes` may be held."""

    __slots__ = ("_clock_ns", "_held", "bytes", "most_bytes")

    def __init__(self, most_bytes: int, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._held: dict[Connection, Held] = {}
        self.bytes = 0
        self.most_bytes = most_bytes

    def count(self, connection: Connection, size: int) -> None:
        """Note that the connection holds `size` bytes now."""
        held = self._held.get(connection)
        if held is None:
            if not size:
                return
            held = self._held[connection] = Held()
        self.bytes += size - held.size
        held.size = size
        if not size:
            del self._held[connection]

    async def end_stalled(self) -> None:
        """Closes the largest connections that are stalled until the others hold no more than they may.

        From half of the limit on it watches what clients receive, so that it knows who is stalled when the limit is reached.
        """
        if self.bytes <= self.most_bytes // 2:
            return
        stalled: list[tuple[int, Connection, Held]] = []
        for connection in list(self._held):
            await pause()
            connection.count_unread()
            held = self._held.get(connection)
            if held is not None and held.is_stalled(connection.delivered, self._clock_ns()) and held.size > FREE_UNREAD_BYTES:
                stalled.append((held.size, connection, held))
        stalled.sort(key=lambda each: each[0], reverse=True)
        for _, connection, held in stalled:
            if self.bytes <= self.most_bytes:
                return
            if self._held.get(connection) is held and connection.delivered == held.delivered:
                connection.offend("the client does not read its answers, and they take memory that others need")
                connection.abort()
            await pause()
