"""Bounds the memory of large requests: one at a time is decoded, handled and answered.

A large request (LARGE_BYTES) waits before it is even decoded; the smallest goes first. This bounds the memory of decoded requests, where an
element of one byte may take a hundred. Two kinds of large requests let the next one begin. The first kind merely waits for an event. The
second kind waits for the metadata store or for a thread. At a time there may be one request of the second kind of any size, and others of
HANDED_ON_BYTES together. A request that is known to be of the second kind begins only when this limit has room for it, so it never keeps
others waiting.

The work on a large request must not keep references to parts of its request or response: when the request is answered, `free` empties the
arrays of both.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from heapq import heappop, heappush
from typing import Any, Final, TypeAlias

from ottla.broker.network.request_channel import Answer, Pending
from ottla.pauses import pause
from ottla.protocol.schema.fields import ArrayOf, Fixed
from ottla.protocol.schema.message import Struct

LARGE_BYTES: Final = 16 * 1024
"""Smallest request that waits for its turn, bytes; the elements of smaller ones can be read within some milliseconds."""
HANDED_ON_BYTES: Final = 1024 * 1024
"""Most bytes together of the large requests that wait for the store or a thread, besides the largest one: some 500,000 elements."""

_Work: TypeAlias = Coroutine[Any, Any, Answer]
_Waiting: TypeAlias = tuple[int, int, _Work, Pending, bool]
"""Size, number, work, answer, and whether it needs room among the requests that are handed on."""


async def free(message: Struct) -> None:
    """Empties the arrays of a message that is no longer needed. Freeing a large message at once would hold the loop for long."""
    for field in message.SCHEMA.fields:
        if isinstance(field.type, ArrayOf) and not isinstance(field.type.element, Fixed):
            items = getattr(message, field.name)
            while items:
                item = items.pop()
                if isinstance(item, Struct):
                    await free(item)
                await pause()


class _Large:
    """A large request in progress."""

    __slots__ = ("is_handed_on", "pending", "rest", "size")

    def __init__(self, pending: Pending, size: int, rest: AbstractContextManager[None]) -> None:
        """`rest` is the context that is entered while the request is in progress."""
        self.pending = pending
        self.size = size
        self.rest = rest
        self.is_handed_on = False
        """Whether it waits for the store or a thread."""


class LargeRequests:
    """See the module."""

    __slots__ = ("_armed", "_begin", "_call_soon", "_count", "_handed_on", "_place", "_postponed", "_waiting", "_while_large")

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        begin: Callable[[_Work, Pending], object],
        while_large: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`begin` begins the work on a request; `leave` follows."""
        self._call_soon = call_soon
        self._begin = begin
        self._waiting: list[_Waiting] = []
        """A heap. The work of a client that left is closed, and is passed over."""
        self._postponed: list[_Waiting] = []
        """Those that wait for room among the requests that are handed on."""
        self._place: _Large | None = None
        self._handed_on: dict[Pending, _Large] = {}
        """The large requests that are handed on, without the one that still has the place."""
        self._while_large = while_large
        self._count = 0
        self._armed = False

    def wait(self, work: _Work, pending: Pending, *, needs_room: bool = False) -> None:
        """Begins a large request when its turn comes; never if its client leaves before. `needs_room`: it will be handed on."""
        self._count += 1
        heappush(self._waiting, (pending.waiting_bytes, self._count, work, pending, needs_room))

        def withdraw() -> None:
            work.close()
            pending.end_waiting()

        pending.on_closed = withdraw
        self._arm()

    def leave(self, pending: Pending) -> None:
        """A request is done, or merely waits for an event from now on: another large one may begin."""
        place = self._place
        if place is not None and place.pending is pending:
            self._place = None
            large: _Large | None = place
        else:
            large = self._handed_on.pop(pending, None)
        if large is None:
            return
        large.rest.__exit__(None, None, None)
        self._give_place_up()
        for postponed in self._postponed:
            heappush(self._waiting, postponed)
        self._postponed.clear()
        self._arm()

    def hand_on(self, pending: Pending) -> bool:
        """A request waits for the store or a thread: another large one may begin, if there is room. False if it is no large request."""
        place = self._place
        if place is None or place.pending is not pending:
            return pending in self._handed_on
        place.is_handed_on = True
        self._give_place_up()
        return True

    def _give_place_up(self) -> None:
        """Let another large request begin if this one is handed on, and the others leave room in memory."""
        place = self._place
        if place is not None and place.is_handed_on and self._has_room(place.size):
            self._handed_on[place.pending] = place
            self._place = None
            self._arm()

    def _has_room(self, size: int) -> bool:
        """Whether one more request, of `size` bytes, may be handed on."""
        sizes = [size, *(each.size for each in self._handed_on.values())]
        return sum(sizes) - max(sizes) <= HANDED_ON_BYTES

    def _begin_next(self) -> None:
        """Begin the smallest large request that may."""
        self._armed = False
        while self._waiting and self._place is None:
            waiting = heappop(self._waiting)
            size, _, work, pending, needs_room = waiting
            if not pending.waiting_bytes:
                continue  # its client has left
            if needs_room and not self._has_room(size):
                self._postponed.append(waiting)
                continue
            pending.end_waiting()
            pending.on_closed = None
            self._place = _Large(pending, size, self._while_large())
            self._place.rest.__enter__()
            self._begin(work, pending)
            break
        self._arm()

    def _arm(self) -> None:
        if not self._armed and self._waiting and self._place is None:
            self._armed = True
            self._call_soon(self._begin_next)

    def close(self) -> None:
        """Drop all requests that are left."""
        for _, _, work, _, _ in (*self._waiting, *self._postponed):
            work.close()
        self._waiting.clear()
        self._postponed.clear()
        for pending in [*self._handed_on] + ([] if self._place is None else [self._place.pending]):
            self.leave(pending)
